/* flow.c: the loop of `for message in receiver`, as long as its lane serves (lane.c). Each message is consumed when the next one is
 * asked for. */
#include "python/slot.h"

PyTypeObject *hf_flow_type;

struct flow {
    PyObject_HEAD
    struct gate *receiver;
    struct lane *lane; /* NULL: the loop has ended */
    struct slot *current;
    long long look_ns;
};

static int flow_traverse(struct flow *f, visitproc visit, void *arg)
{
    Py_VISIT(f->receiver);
    Py_VISIT(f->lane);
    Py_VISIT(f->current);
    Py_VISIT(Py_TYPE(OBJECT(f)));
    return 0;
}

static int flow_clear(PyObject *self)
{
    struct flow *f = (struct flow *)self;
    Py_CLEAR(f->current);
    Py_CLEAR(f->lane);
    Py_CLEAR(f->receiver);
    return 0;
}

/* The iterator was dropped (break, an exception, a collection of garbage): its current message is in the program's hand until the
 * next request, of any form. */
static void leave(PyObject *self)
{
    struct flow *f = (struct flow *)self;
    struct slot *s = f->current;
    f->current = NULL;
    if (s != NULL && f->receiver != NULL && s->live && !s->retained) {
        PyObject *error, *value, *trace;
        PyErr_Fetch(&error, &value, &trace);
        PyObject *done = PyObject_CallMethod(OBJECT(f->receiver), "leave", "O", s);
        if (done == NULL) {
            PyErr_WriteUnraisable(NULL);
        }
        Py_XDECREF(done);
        PyErr_Restore(error, value, trace);
    }
    Py_XDECREF(OBJECT(s));
}

static void flow_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    leave(self);
    hf_dealloc(self, flow_clear);
}

/* Flow(receiver, look_ns): by the lane that it has. */
static PyObject *flow_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *receiver;
    long long look_ns;
    if (!hf_no_keywords(keywords) || !PyArg_ParseTuple(args, "O!L:Flow", hf_gate_type, &receiver, &look_ns)) {
        return NULL;
    }
    struct lane *lane = hf_lane_of((struct gate *)receiver);
    if (lane == NULL) {
        PyErr_SetString(PyExc_ValueError, "Flow: the receiver has no lane");
        return NULL;
    }
    struct flow *f = (struct flow *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (f != NULL) {
        Py_INCREF(receiver);
        f->receiver = (struct gate *)receiver;
        Py_INCREF(OBJECT(lane));
        f->lane = lane;
        f->look_ns = look_ns;
    }
    return OBJECT(f);
}

/* Nothing came. 1: look again; 0: the loop ends; -1: an exception. */
static int worth_waiting(struct flow *f)
{
    if (PyErr_CheckSignals() < 0) { /* here, where a handler may receive */
        return -1;
    }
    if (f->lane == NULL || hf_lane_is_newer(f->lane)) {
        return 0;
    }
    PyObject *context = PyObject_GetAttrString(OBJECT(f->receiver), "context");
    PyObject *raised = context == NULL ? NULL : PyObject_GetAttrString(context, "callback_raised");
    int found = raised == NULL ? -1 : PyObject_IsTrue(raised);
    Py_XDECREF(context);
    Py_XDECREF(raised);
    return found < 0 ? -1 : !found;
}

/* What the program was given last is consumed, unless it was released or is retained; so are messages of loops within this one that
 * were left. -1: an exception; 0: the loop has ended; 1. */
int hf_flow_consume(struct flow *f)
{
    struct slot *s = f->current;
    if (f->lane == NULL) {
        return 0;
    }
    f->current = NULL;
    int status = s == NULL || s->retained ? 0 : hf_slot_release(s);
    Py_XDECREF(OBJECT(s));
    if (status == 0 && f->receiver->left) {
        PyObject *done = PyObject_CallMethod(OBJECT(f->receiver), "consume_left", NULL);
        status = done == NULL ? -1 : 0;
        Py_XDECREF(done);
    }
    return status < 0 ? -1 : 1;
}

/* The next message into `message`; see enum hf_found. */
int hf_flow_step(struct flow *f, int waits, PyObject **message)
{
    *message = NULL;
    int found = hf_flow_consume(f) < 0 ? -1 : HF_NOTHING;
    while (found == HF_NOTHING && f->lane != NULL) {
        struct lane *lane = f->lane;
        Py_INCREF(OBJECT(lane));
        found = hf_lane_take(f->receiver, lane, waits ? HF_WAIT : HF_SOON, f->look_ns, message);
        if (found == HF_NOTHING) {
            int worth = worth_waiting(f);
            found = worth < 0 ? -1 : worth ? HF_NOTHING : HF_OVER;
        }
        Py_DECREF(OBJECT(lane));
        if (!waits) {
            break;
        }
    }
    if (found == HF_MESSAGE) {
        struct slot *meanwhile = f->current; /* whoever was called has gone on with this very loop */
        Py_INCREF(*message);
        f->current = (struct slot *)*message;
        if (meanwhile != NULL && !meanwhile->retained && hf_slot_release(meanwhile) < 0) {
            PyErr_WriteUnraisable(OBJECT(meanwhile));
        }
        Py_XDECREF(OBJECT(meanwhile));
    }
    if (found == HF_OVER || f->lane == NULL) {
        Py_CLEAR(f->lane);
        return found == HF_NOTHING ? HF_OVER : found;
    }
    return found;
}

static PyObject *flow_next(struct flow *f)
{
    PyObject *message;
    hf_flow_step(f, 1, &message);
    return message;
}

static PyType_Slot flow_slots[] = {{Py_tp_new, flow_new},       {Py_tp_dealloc, flow_dealloc},
                                   {Py_tp_finalize, leave},     {Py_tp_traverse, flow_traverse},
                                   {Py_tp_clear, flow_clear},   {Py_tp_iter, PyObject_SelfIter},
                                   {Py_tp_iternext, flow_next}, {0, NULL}};
static PyType_Spec flow_spec = {"holdfast._receive.Flow", sizeof(struct flow), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, flow_slots};

int hf_flow_types(PyObject *module)
{
    hf_flow_type = hf_add_type(module, "Flow", &flow_spec);
    return hf_flow_type == NULL ? -1 : 0;
}
