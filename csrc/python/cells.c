/* cells.c: Counts and Served, which are fields and nothing else, and what all types of this module share. */
#include "python/slot.h"

PyTypeObject *hf_counts_type, *hf_served_type;

int hf_no_keywords(PyObject *keywords)
{
    if (keywords == NULL || PyDict_Size(keywords) == 0) {
        return 1;
    }
    PyErr_SetString(PyExc_TypeError, "this type takes no keywords");
    return 0;
}

/* Not by the type's slot: that is the deriving class's, which has ended its part already. */
void hf_dealloc(PyObject *self, int (*clear)(PyObject *))
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyTypeObject *hf_add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL || PyModule_AddObjectRef(module, name, type) < 0) {
        Py_XDECREF(type);
        return NULL;
    }
    return (PyTypeObject *)type; /* the module's types live as long as the process */
}

PyObject *hf_or_none(void *object)
{
    PyObject *found = object != NULL ? object : Py_None;
    Py_INCREF(found);
    return found;
}

void hf_set(PyObject **field, PyObject *value)
{
    PyObject *before = *field;
    Py_XINCREF(value);
    *field = value;
    Py_XDECREF(before);
}

/* Sets a field that only objects of one type may be in: C looks into them. */
int hf_set_checked(PyObject **field, PyObject *value, PyTypeObject *type, const char *name)
{
    if (value == NULL || !PyObject_TypeCheck(value, type)) {
        PyErr_Format(PyExc_TypeError, "%s takes another type of object", name);
        return -1;
    }
    hf_set(field, value);
    return 0;
}

static int counts_traverse(struct counts *c, visitproc visit, void *arg)
{
    Py_VISIT(c->window);
    Py_VISIT(Py_TYPE(OBJECT(c)));
    return 0;
}

static int counts_clear(PyObject *self)
{
    ((struct counts *)self)->plain = NULL;
    Py_CLEAR(((struct counts *)self)->window);
    return 0;
}

static PyObject *counts_window(struct counts *c, void *closure)
{
    (void)closure;
    return hf_or_none(c->window);
}

static int counts_set_window(struct counts *c, PyObject *value, void *closure)
{
    (void)closure;
    c->plain = value != NULL && PyObject_TypeCheck(value, hf_deliveries_type) ? (struct deliveries *)value : NULL;
    hf_set(&c->window, value);
    return 0;
}

static void counts_dealloc(PyObject *self)
{
    hf_dealloc(self, counts_clear);
}

static PyGetSetDef counts_fields[] = {{"window", (getter)counts_window, (setter)counts_set_window, NULL, NULL}, {NULL}};
static PyMemberDef counts_members[] = {{"delivered", T_LONGLONG, offsetof(struct counts, delivered), 0, NULL},
                                       {"redelivered", T_LONGLONG, offsetof(struct counts, redelivered), 0, NULL},
                                       {"dozing", T_BOOL, offsetof(struct counts, dozing), 0, NULL},
                                       {NULL}};

static int served_traverse(struct served *s, visitproc visit, void *arg)
{
    Py_VISIT(s->ring);
    Py_VISIT(Py_TYPE(OBJECT(s)));
    return 0;
}

static int served_clear(PyObject *self)
{
    Py_CLEAR(((struct served *)self)->ring);
    return 0;
}

static void served_dealloc(PyObject *self)
{
    hf_dealloc(self, served_clear);
}

static PyObject *served_ring(struct served *s, void *closure)
{
    (void)closure;
    return hf_or_none(s->ring);
}

static int served_set_ring(struct served *s, PyObject *value, void *closure)
{
    (void)closure;
    s->turn++;
    hf_set(&s->ring, value);
    return 0;
}

static PyGetSetDef served_fields[] = {{"ring", (getter)served_ring, (setter)served_set_ring, NULL, NULL}, {NULL}};
static PyMemberDef served_members[] = {{"live_from", T_ULONGLONG, offsetof(struct served, live_from), 0, NULL},
                                       {"newer", T_BOOL, offsetof(struct served, newer), 0, NULL},
                                       {NULL}};

#define FLAGS Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
static PyType_Slot counts_slots[] = {{Py_tp_dealloc, counts_dealloc}, {Py_tp_traverse, counts_traverse},
                                     {Py_tp_clear, counts_clear},     {Py_tp_getset, counts_fields},
                                     {Py_tp_members, counts_members}, {0, NULL}};
static PyType_Spec counts_spec = {"holdfast._receive.Counts", sizeof(struct counts), 0, FLAGS, counts_slots};
static PyType_Slot served_slots[] = {{Py_tp_dealloc, served_dealloc}, {Py_tp_traverse, served_traverse},
                                     {Py_tp_clear, served_clear},     {Py_tp_getset, served_fields},
                                     {Py_tp_members, served_members}, {0, NULL}};
static PyType_Spec served_spec = {"holdfast._receive.Served", sizeof(struct served), 0, FLAGS, served_slots};

int hf_cell_types(PyObject *module)
{
    hf_counts_type = hf_add_type(module, "Counts", &counts_spec);
    hf_served_type = hf_add_type(module, "Served", &served_spec);
    return hf_counts_type == NULL || hf_served_type == NULL ? -1 : 0;
}
