/* flow.c: the loop of `for message in receiver`, as long as there is one source and its ring serves.
 *
 * Until something else is delivered the current message needs no record in the ack window: the acknowledgement passes it when the
 * next one is asked for. Whatever else delivers calls Receiver.settle first, which gives it one (`_ack_slot`); so a window that was
 * idle when it was delivered is idle still when it has none. Between two messages there is no current one, and a signal handler may
 * receive: whoever delivers counts in `delivered`, which therefore tells whether the window has to be asked again. */
#include "python/slot.h"
#include "base/status.h"

typedef int64_t soon_function(void *reader, struct hf_entry *entry, uint8_t *to, uint64_t capacity, int64_t within_ns);
typedef int64_t wait_function(void *reader, struct hf_entry *entry, uint8_t *to, uint64_t capacity, int strategy,
                              int64_t timeout_ns);

PyTypeObject *hf_flow_type;

struct flow {
    PyObject_HEAD
    struct gate *receiver;
    struct counts *controller;
    struct served *feed;
    PyObject *controllers; /* of the receiver, when the loop began */
    PyObject *ring;        /* it owns `reader` */
    struct passed *window;
    PyObject *evicted;
    PyObject *pool; /* NULL: the loop has ended */
    struct slot *current;
    struct slot *spare[2];
    soon_function *soon;
    wait_function *wait;
    void *reader;
    long long within_ns, look_ns;
    long long delivered; /* of `controller`, when the window was asked */
    int strategy;
    char flows; /* while messages come, the next one is looked for before the GIL is given away */
    char idle;  /* the window had no record then */
};

static int flow_traverse(struct flow *f, visitproc visit, void *arg)
{
    Py_VISIT(f->receiver);
    Py_VISIT(f->controller);
    Py_VISIT(f->feed);
    Py_VISIT(f->controllers);
    Py_VISIT(f->ring);
    Py_VISIT(f->window);
    Py_VISIT(f->evicted);
    Py_VISIT(f->pool);
    Py_VISIT(f->current);
    Py_VISIT(f->spare[0]);
    Py_VISIT(f->spare[1]);
    Py_VISIT(Py_TYPE(OBJECT(f)));
    return 0;
}

static int flow_clear(struct flow *f)
{
    Py_CLEAR(f->current);
    Py_CLEAR(f->spare[0]);
    Py_CLEAR(f->spare[1]);
    Py_CLEAR(f->receiver);
    Py_CLEAR(f->controller);
    Py_CLEAR(f->feed);
    Py_CLEAR(f->controllers);
    Py_CLEAR(f->ring);
    Py_CLEAR(f->window);
    Py_CLEAR(f->evicted);
    Py_CLEAR(f->pool);
    return 0;
}

/* A message that nobody uses goes back to the pool. -1: an exception. */
static int give_back(struct flow *f, struct slot *s)
{
    if (s == NULL || f->pool == NULL) {
        Py_XDECREF(OBJECT(s));
        return 0;
    }
    PyObject *done = PyObject_CallMethod(f->pool, "give", "O", s);
    Py_DECREF(OBJECT(s));
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The loop has ended: what it kept for itself is everybody's again. */
static int give_all_back(struct flow *f)
{
    int status = 0;
    for (int i = 0; i < 2; i++) {
        struct slot *s = f->spare[i];
        f->spare[i] = NULL;
        status |= give_back(f, s);
    }
    return status;
}

/* The iterator was dropped (break, an exception): its current message is in the program's hand until the next request, of any
 * form. -1: an exception. */
static int leave(struct flow *f)
{
    struct slot *s = f->current;
    if (s == NULL || f->receiver == NULL || !s->live || s->retained) {
        return 0;
    }
    PyObject *done = PyObject_CallMethod(OBJECT(f->receiver), "leave", "O", s);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static void flow_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject *error, *value, *trace;
    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&error, &value, &trace);
    if (leave((struct flow *)self) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
    if (give_all_back((struct flow *)self) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
    PyErr_Restore(error, value, trace);
    flow_clear((struct flow *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *attribute(PyObject *of, const char *name, PyTypeObject *type)
{
    PyObject *found = PyErr_Occurred() ? NULL : PyObject_GetAttrString(of, name);
    if (found != NULL && type != NULL && !PyObject_TypeCheck(found, type)) {
        PyErr_Format(PyExc_TypeError, "Flow: %s is of another type", name);
        Py_CLEAR(found);
    }
    return found;
}

/* Flow(receiver, controller, feed, ring, (soon, wait, reader), strategy, within_ns, look_ns): addresses as integers. */
static PyObject *flow_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *receiver, *controller, *feed, *ring, *soon, *wait, *reader;
    int strategy;
    long long within_ns, look_ns;
    if (!hf_no_keywords(keywords) ||
        !PyArg_ParseTuple(args, "O!O!O!O(OOO)iLL:Flow", hf_gate_type, &receiver, hf_counts_type, &controller,
                          hf_served_type, &feed, &ring, &soon, &wait, &reader, &strategy, &within_ns, &look_ns)) {
        return NULL;
    }
    struct flow *f = (struct flow *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (f == NULL) {
        return NULL;
    }
    *(void **)&f->soon = PyLong_AsVoidPtr(soon);
    *(void **)&f->wait = PyLong_AsVoidPtr(wait);
    f->reader = PyLong_AsVoidPtr(reader);
    f->strategy = strategy;
    f->within_ns = within_ns;
    f->look_ns = look_ns;
    Py_INCREF(receiver);
    f->receiver = (struct gate *)receiver;
    Py_INCREF(OBJECT(controller));
    f->controller = (struct counts *)controller;
    Py_INCREF(feed);
    f->feed = (struct served *)feed;
    Py_INCREF(ring);
    f->ring = ring;
    f->controllers = attribute(receiver, "controllers", NULL);
    f->window = (struct passed *)attribute(controller, "window", hf_passed_type);
    f->evicted = attribute(receiver, "_evicted", NULL);
    f->pool = attribute(receiver, "pool", NULL);
    if (PyErr_Occurred() || f->soon == NULL || f->wait == NULL || f->reader == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "Flow: an address is 0");
        }
        Py_DECREF(f);
        return NULL;
    }
    return (PyObject *)f;
}

/* One source, its ring serves, nothing is to be delivered again. -1: an exception. */
static int goes_on(struct flow *f)
{
    if (f->pool == NULL || f->feed->ring != f->ring || f->receiver->controllers != f->controllers ||
        f->receiver->closed) {
        return 0;
    }
    Py_ssize_t evicted = PyObject_Size(f->evicted);
    return evicted < 0 ? -1 : evicted == 0;
}

/* The current message is consumed, unless it was released or is retained. The program's variable still refers to it: it is used
 * again when that has let it go. -1: an exception. */
static int consume(struct flow *f)
{
    struct slot *s = f->current;
    f->current = NULL;
    if (f->receiver->iterated == OBJECT(s)) {
        f->receiver->iterated = NULL;
        Py_DECREF(OBJECT(s));
    }
    if (!s->live || s->retained) {
        Py_DECREF(OBJECT(s));
        return 0;
    }
    if (s->ack_slot != hf_iterated || !f->idle) {
        PyObject *done = PyObject_CallMethod(OBJECT(s), "release", NULL); /* which gives it back */
        f->idle = 0;
        Py_DECREF(OBJECT(s));
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    f->window->passed_below = s->entry.sequence_number + 1;
    s->live = 0;
    int out = hf_slot_untie(s);
    if (out != 0) {
        PyObject *done = out > 0 ? PyObject_CallMethod(OBJECT(s), "forget", NULL) : NULL;
        Py_DECREF(OBJECT(s));
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    for (int i = 0; i < 2; i++) {
        if (f->spare[i] == NULL) {
            f->spare[i] = s;
            return 0;
        }
    }
    return give_back(f, s);
}

/* A message that nobody else refers to. NULL: an exception. */
static struct slot *fresh(struct flow *f)
{
    for (int i = 0; i < 2; i++) {
        struct slot *s = f->spare[i];
        if (s != NULL && s->block != NULL && Py_REFCNT(OBJECT(s)) == 1) {
            f->spare[i] = NULL;
            return s;
        }
    }
    PyObject *made = PyObject_CallMethod(f->pool, "take", NULL);
    if (made != NULL && (!PyObject_TypeCheck(made, hf_slot_type) || ((struct slot *)made)->block == NULL)) {
        PyErr_SetString(PyExc_TypeError, "Flow: the pool gave something else than a message with memory");
        Py_CLEAR(made);
    }
    return (struct slot *)made;
}

/* Only one thread receives. -1: an exception. */
static int enter(struct flow *f)
{
    if (!f->receiver->receiving) {
        f->receiver->receiving = 1;
        return 0;
    }
    PyObject *done = PyObject_CallMethod(OBJECT(f->receiver), "_enter", NULL); /* which raises, as a rule */
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* 1: a message is in `s`; 0: none yet; -1: an exception; another negative number: the ring does not serve it. */
static int64_t look(struct flow *f, struct slot *s, int waits)
{
    if (enter(f) < 0) {
        return -1;
    }
    int64_t status = 0;
    struct block *block = s->block;
    Py_INCREF(OBJECT(block)); /* C writes to it without the GIL */
    if (f->flows || !waits) {
        int64_t within_ns = f->flows ? f->within_ns : 0;
        status = f->soon(f->reader, &s->entry, block->bytes, (uint64_t)block->capacity, within_ns);
    }
    if (status == 0) {
        f->flows = 0;
    }
    if (status == 0 && waits) {
        Py_BEGIN_ALLOW_THREADS
        status = f->wait(f->reader, &s->entry, block->bytes, (uint64_t)block->capacity, f->strategy, f->look_ns);
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(OBJECT(block));
    f->receiver->receiving = 0;
    if (status == 0 && waits && PyErr_CheckSignals() < 0) {
        return -1;
    }
    return status == -1 ? HF_USAGE : status;
}

/* Nothing came. 1: look again; 0: the loop ends; -1: an exception. */
static int worth_waiting(struct flow *f)
{
    if (f->feed->newer) {
        return 0;
    }
    PyObject *context = PyObject_GetAttrString(OBJECT(f->receiver), "context");
    PyObject *raised = context == NULL ? NULL : PyObject_GetAttrString(context, "callback_raised");
    int found = raised == NULL ? -1 : PyObject_IsTrue(raised);
    Py_XDECREF(context);
    Py_XDECREF(raised);
    return found < 0 ? -1 : !found;
}

/* Before a look, for after it nothing may fail. A loop within this one may have left a message that has no record. -1: an exception. */
static int look_at_window(struct flow *f)
{
    PyObject *left = f->receiver->iterated;
    if (left != NULL && left != Py_None) {
        PyObject *done = PyObject_CallMethod(OBJECT(f->receiver), "settle", NULL);
        if (done == NULL) {
            return -1;
        }
        Py_DECREF(done);
        f->idle = 0;
    }
    if (f->idle && f->delivered == f->controller->delivered) {
        return 0;
    }
    long long delivered = f->controller->delivered;
    PyObject *idle = PyObject_CallMethod(OBJECT(f->window), "idle", NULL);
    int found = idle == NULL ? -1 : PyObject_IsTrue(idle);
    Py_XDECREF(idle);
    f->idle = found > 0;
    f->delivered = delivered;
    return found < 0 ? -1 : 0;
}

/* `s` was filled: the caller's from now on, and the current message. NULL: an exception. */
static PyObject *arrived(struct flow *f, struct slot *s)
{
    struct counts *controller = f->controller;
    if (s->controller != OBJECT(controller)) {
        PyObject *before = s->controller;
        Py_INCREF(OBJECT(controller));
        s->controller = OBJECT(controller);
        Py_XDECREF(before);
    }
    if (s->ack_slot != hf_iterated) {
        PyObject *before = s->ack_slot;
        Py_INCREF(hf_iterated);
        s->ack_slot = hf_iterated;
        Py_XDECREF(before);
    }
    s->live_from = f->feed->live_from;
    s->live = 1;
    s->retained = 0;
    f->idle = f->idle && f->delivered == controller->delivered;
    f->delivered = ++controller->delivered;
    controller->redelivered += s->entry.sequence_number < s->live_from;
    PyObject *before = f->receiver->iterated;
    Py_INCREF(OBJECT(s));
    f->receiver->iterated = OBJECT(s);
    Py_XDECREF(before);
    f->current = s;
    if (controller->dozing) {
        PyObject *done = PyObject_CallMethod(OBJECT(controller), "stir", NULL);
        if (done == NULL) { /* the program has not seen it, so it is not consumed */
            Py_CLEAR(f->current);
            return NULL;
        }
        Py_DECREF(done);
    }
    Py_INCREF(OBJECT(s));
    return OBJECT(s);
}

/* A loop within this one was left. -1: an exception. */
static int consume_left(struct flow *f)
{
    PyObject *done = PyObject_CallMethod(OBJECT(f->receiver), "consume_left", NULL);
    Py_XDECREF(done);
    f->idle = 0;
    return done == NULL ? -1 : 1;
}

/* What the program was given last is consumed; so are messages of loops within this one that were left. -1: an exception; 0: the
 * loop has ended; 1. */
int hf_flow_consume(struct flow *f)
{
    int status = f->pool == NULL ? 0 : 1;
    if (status == 1 && f->current != NULL) {
        status = consume(f) < 0 ? -1 : 1;
    }
    if (status == 1 && f->receiver->left) {
        status = consume_left(f);
    }
    return status;
}

/* The next message into `message`; see enum hf_flow_found. */
int hf_flow_step(struct flow *f, int waits, PyObject **message)
{
    int status = hf_flow_consume(f);
    *message = NULL;
    while (status == 1 && (status = goes_on(f)) == 1) {
        struct slot *s = fresh(f);
        if (s == NULL) {
            return -1;
        }
        int64_t found = look_at_window(f) < 0 ? -1 : look(f, s, waits);
        while (found == HF_SMALL) {
            PyObject *grown = PyObject_CallMethod(OBJECT(s), "grow", NULL);
            found = grown == NULL || look_at_window(f) < 0 ? -1 : look(f, s, waits);
            Py_XDECREF(grown);
        }
        if (found == 1) {
            f->flows = 1;
            *message = arrived(f, s);
            return *message == NULL ? -1 : HF_FLOW_MESSAGE;
        }
        status = found == -1 ? -1 : found == 0 ? worth_waiting(f) : 0;
        if (status < 0) {
            Py_DECREF(OBJECT(s));
        } else if (give_back(f, s) < 0) {
            return -1;
        }
        if (status == 1 && !waits) {
            return HF_FLOW_NOTHING;
        }
    }
    if (status == 0 && give_all_back(f) == 0) {
        Py_CLEAR(f->pool);
    }
    return PyErr_Occurred() ? -1 : HF_FLOW_OVER;
}

static PyObject *flow_next(struct flow *f)
{
    PyObject *message;
    hf_flow_step(f, 1, &message);
    return message;
}

static PyType_Slot flow_slots[] = {{Py_tp_new, flow_new},
                                   {Py_tp_dealloc, flow_dealloc},
                                   {Py_tp_traverse, flow_traverse},
                                   {Py_tp_clear, flow_clear},
                                   {Py_tp_iter, PyObject_SelfIter},
                                   {Py_tp_iternext, flow_next},
                                   {0, NULL}};
static PyType_Spec flow_spec = {"holdfast._receive.Flow", sizeof(struct flow), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, flow_slots};

int hf_flow_types(PyObject *module)
{
    hf_flow_type = (PyTypeObject *)PyType_FromSpec(&flow_spec);
    return hf_flow_type == NULL ? -1 : PyModule_AddObjectRef(module, "Flow", OBJECT(hf_flow_type));
}
