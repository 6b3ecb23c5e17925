/* module.c: the module `holdfast._receive`. */
#include "python/slot.h"

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_receive", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__receive(void)
{
    static int (*const types[])(PyObject *) = {hf_cell_types, hf_deliveries_types, hf_pool_types, hf_slot_types,
                                               hf_lane_types, hf_gate_types,       hf_flow_types, hf_await_type};
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module != NULL && i < sizeof types / sizeof *types; i++) {
        if (types[i](module) < 0) {
            Py_CLEAR(module);
        }
    }
    return module;
}
