/* gate.c: a receiver: one message of one ring by C, everything else by Python (`receive_slowly`, bindings/receiver.py). */
#include "python/slot.h"

PyTypeObject *hf_gate_type;

static int gate_traverse(struct gate *g, visitproc visit, void *arg)
{
    Py_VISIT(g->controllers);
    Py_VISIT(g->lane);
    Py_VISIT(g->pool);
    Py_VISIT(Py_TYPE(OBJECT(g)));
    return 0;
}

static int gate_clear(PyObject *self)
{
    struct gate *g = (struct gate *)self;
    Py_CLEAR(g->lane);
    Py_CLEAR(g->controllers);
    Py_CLEAR(g->pool);
    return 0;
}

static void gate_dealloc(PyObject *self)
{
    hf_dealloc(self, gate_clear);
}

static void end_lane(struct gate *g)
{
    hf_set(&g->lane, NULL);
}

static PyObject *gate_controllers(struct gate *g, void *closure)
{
    (void)closure;
    if (g->controllers == NULL) {
        PyErr_SetString(PyExc_AttributeError, "controllers");
        return NULL;
    }
    Py_INCREF(g->controllers);
    return g->controllers;
}

static int gate_set_controllers(struct gate *g, PyObject *value, void *closure)
{
    (void)closure;
    end_lane(g);
    hf_set(&g->controllers, value);
    return 0;
}

/* None, or a number that is not negative; anything else is Python's to refuse. `*waits`: not 0. */
static int is_timeout(PyObject *timeout, int *waits)
{
    *waits = 1;
    if (timeout == Py_None) {
        return 1;
    }
    if (PyFloat_CheckExact(timeout)) {
        double seconds = PyFloat_AsDouble(timeout);
        *waits = seconds != 0;
        return seconds >= 0;
    }
    if (PyLong_CheckExact(timeout)) {
        int over = 0;
        long long seconds = PyLong_AsLongLongAndOverflow(timeout, &over);
        *waits = seconds != 0 || over != 0;
        return over > 0 || (over == 0 && seconds >= 0);
    }
    return 0;
}

/* The one argument of `receive`, borrowed. NULL: an exception. */
static PyObject *timeout_of(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (positional + named == 0) {
        return Py_None;
    }
    if (positional + named == 1 &&
        (named == 0 || PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "timeout") == 0)) {
        return args[0];
    }
    PyErr_SetString(PyExc_TypeError, "receive() takes one argument: timeout (seconds, None for ever)");
    return NULL;
}

static PyObject *gate_receive(PyObject *self, PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    struct gate *g = (struct gate *)self;
    PyObject *timeout = timeout_of(args, positional, names), *message;
    if (timeout == NULL) {
        return NULL;
    }
    struct lane *lane = hf_lane_of(g);
    int waits;
    if (lane != NULL && !g->left && is_timeout(timeout, &waits)) {
        int found = hf_lane_take(g, lane, waits ? HF_SOON : HF_NOW, 0, &message);
        if (found == HF_MESSAGE || found < 0) {
            return message;
        }
    }
    return PyObject_CallMethod(self, "receive_slowly", "(O)", timeout);
}

/* has_lane(): it serves. */
static PyObject *gate_has_lane(struct gate *g, PyObject *none)
{
    (void)none;
    int serves = hf_lane_serves(g, hf_lane_of(g));
    if (!serves) {
        end_lane(g);
    }
    return PyBool_FromLong(serves);
}

/* wait_in_lane(ns): the next message of it, or None. Where something else must be looked at, it ends. The caller receives. */
static PyObject *gate_wait_in_lane(struct gate *g, PyObject *ns)
{
    long long wait_ns = PyLong_AsLongLong(ns);
    struct lane *lane = hf_lane_of(g);
    PyObject *message = NULL;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (lane != NULL) {
        Py_INCREF(OBJECT(lane));
        int found = hf_lane_look(g, lane, HF_WAIT, wait_ns, &message);
        if (found == HF_OVER && g->lane == OBJECT(lane)) {
            end_lane(g);
        }
        Py_DECREF(OBJECT(lane));
        if (found == HF_MESSAGE || found < 0) {
            return message;
        }
    }
    Py_RETURN_NONE;
}

/* arrived(controller, live_from, message): `message` was filled; it is delivered. */
static PyObject *gate_arrived(struct gate *g, PyObject *args)
{
    PyObject *controller, *message;
    unsigned long long live_from;
    if (!PyArg_ParseTuple(args, "O!KO!:arrived", hf_counts_type, &controller, &live_from, hf_slot_type, &message)) {
        return NULL;
    }
    Py_INCREF(message);
    return hf_lane_deliver(g, (struct counts *)controller, live_from, (struct slot *)message, 0);
}

static PyMethodDef gate_methods[] = {
    {"receive", (PyCFunction)(void (*)(void))gate_receive, METH_FASTCALL | METH_KEYWORDS,
     "receive($self, /, timeout=None)\n--\n\n"
     "The next message, or None when the timeout (seconds; None for ever, 0 not at all) is over.\n\n"
     "The message is not consumed until it is released; any number may be held.\n\n"
     "Raises:\n"
     "    UsageError: another thread is receiving, or the receiver has a callback.\n"
     "    RegistrationError, RegIdInUseError: nothing can come, because a registration failed, or a store\n"
     "        refuses. A call that waits believes only what a store was asked since the call: who held the\n"
     "        RegID before may have closed.\n"},
    {"has_lane", (PyCFunction)gate_has_lane, METH_NOARGS, NULL},
    {"wait_in_lane", (PyCFunction)gate_wait_in_lane, METH_O, NULL},
    {"arrived", (PyCFunction)gate_arrived, METH_VARARGS, NULL},
    {NULL}};
static PyObject *gate_pool(struct gate *g, void *closure)
{
    (void)closure;
    return hf_or_none(g->pool);
}

static int gate_set_pool(struct gate *g, PyObject *value, void *closure)
{
    (void)closure;
    return hf_set_checked((PyObject **)&g->pool, value, hf_pool_type, "pool");
}

static PyGetSetDef gate_fields[] = {{"pool", (getter)gate_pool, (setter)gate_set_pool, NULL, NULL},
                                    {"controllers", (getter)gate_controllers, (setter)gate_set_controllers, NULL, NULL},
                                    {NULL}};
#define FIELD(name, type, flags) {#name, type, offsetof(struct gate, name), flags, NULL}
static PyMemberDef gate_members[] = {
    FIELD(lane, T_OBJECT, 0), FIELD(closed, T_BOOL, 0),    FIELD(receiving, T_BOOL, 0),        FIELD(left, T_BOOL, 0),
    FIELD(again, T_BOOL, 0),  FIELD(immediate, T_BOOL, 0), FIELD(slots, T_LONGLONG, READONLY), {NULL}};
static PyType_Slot gate_slots[] = {{Py_tp_dealloc, gate_dealloc},
                                   {Py_tp_traverse, gate_traverse},
                                   {Py_tp_clear, gate_clear},
                                   {Py_tp_methods, gate_methods},
                                   {Py_tp_getset, gate_fields},
                                   {Py_tp_members, gate_members},
                                   {0, NULL}};
static PyType_Spec gate_spec = {"holdfast._receive.Gate", sizeof(struct gate), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, gate_slots};

int hf_gate_types(PyObject *module)
{
    hf_gate_type = hf_add_type(module, "Gate", &gate_spec);
    return hf_gate_type == NULL ? -1 : 0;
}
