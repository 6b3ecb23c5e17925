/* module.c: the module `holdfast._receive`. */
#include "python/slot.h"

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_receive", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__receive(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (hf_slot_types(module) < 0 || hf_flow_types(module) < 0 || hf_await_type(module) < 0)) {
        Py_CLEAR(module);
    }
    return module;
}
