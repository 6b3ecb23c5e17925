/* lane.c: the short way to a message: one source, whose ring serves, so C may look into it without asking Python anything.
 *
 * Python opens a lane (Receiver.open_lane) and Gate keeps it. It ends when the receiver's sources change (they are replaced as a
 * whole), when something else than this ring serves (`turn`), when something is to be delivered again, and when the receiver closes.
 * Between the look that finds a message and its record in the ack window no Python runs, so nothing can come in between. */
#include "python/slot.h"
#include "base/status.h"

typedef int64_t soon_function(void *reader, struct hf_entry *entry, uint8_t *to, uint64_t capacity, int64_t within_ns);
typedef int64_t wait_function(void *reader, struct hf_entry *entry, uint8_t *to, uint64_t capacity, int strategy,
                              int64_t timeout_ns);

PyTypeObject *hf_lane_type;

struct lane {
    PyObject_HEAD
    PyObject *controllers; /* the receiver's, when the lane was made: there was one source */
    struct counts *controller;
    struct served *feed;
    soon_function *soon;
    wait_function *wait;
    void *reader; /* owned by the ring that served in this `turn` */
    unsigned long long turn;
    long long within_ns;
    int strategy;
    char flows; /* messages come: the next one is looked for before the GIL is given away */
};

static int lane_traverse(struct lane *l, visitproc visit, void *arg)
{
    Py_VISIT(l->controllers);
    Py_VISIT(l->controller);
    Py_VISIT(l->feed);
    Py_VISIT(Py_TYPE(OBJECT(l)));
    return 0;
}

static int lane_clear(PyObject *self)
{
    struct lane *l = (struct lane *)self;
    Py_CLEAR(l->controllers);
    Py_CLEAR(l->controller);
    Py_CLEAR(l->feed);
    return 0;
}

static void lane_dealloc(PyObject *self)
{
    hf_dealloc(self, lane_clear);
}

/* Lane(controllers, controller, feed, (soon, wait, reader), strategy, within_ns): addresses as integers. */
static PyObject *lane_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *controllers, *controller, *feed, *soon, *wait, *reader;
    int strategy;
    long long within_ns;
    if (!hf_no_keywords(keywords) ||
        !PyArg_ParseTuple(args, "O!O!O!(OOO)iL:Lane", &PyTuple_Type, &controllers, hf_counts_type, &controller,
                          hf_served_type, &feed, &soon, &wait, &reader, &strategy, &within_ns)) {
        return NULL;
    }
    struct lane *l = (struct lane *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (l == NULL) {
        return NULL;
    }
    *(void **)&l->soon = PyLong_AsVoidPtr(soon);
    *(void **)&l->wait = PyLong_AsVoidPtr(wait);
    l->reader = PyLong_AsVoidPtr(reader);
    if (PyErr_Occurred() || l->soon == NULL || l->wait == NULL || l->reader == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "Lane: an address is 0");
        }
        Py_DECREF(l);
        return NULL;
    }
    l->strategy = strategy;
    l->within_ns = within_ns;
    l->turn = ((struct served *)feed)->turn;
    Py_INCREF(controllers);
    l->controllers = controllers;
    Py_INCREF(controller);
    l->controller = (struct counts *)controller;
    Py_INCREF(feed);
    l->feed = (struct served *)feed;
    return OBJECT(l);
}

struct lane *hf_lane_of(struct gate *g)
{
    return g->lane != NULL && Py_TYPE(g->lane) == hf_lane_type ? (struct lane *)g->lane : NULL;
}

int hf_lane_serves(struct gate *g, struct lane *l)
{
    return l != NULL && g->lane == OBJECT(l) && g->controllers == l->controllers && l->feed != NULL &&
           l->feed->turn == l->turn && l->feed->ring != NULL && l->feed->ring != Py_None && !g->closed && !g->again;
}

int hf_lane_is_newer(struct lane *l)
{
    return l->feed != NULL && l->feed->newer;
}

/* After an exception that came before the program has the message: it is delivered again. */
static void take_back(struct gate *g, struct counts *c, struct slot *s)
{
    PyObject *error, *value, *trace;
    PyErr_Fetch(&error, &value, &trace);
    PyObject *done = PyObject_CallMethod(OBJECT(g), "take_back", "OO", c, s);
    if (done == NULL) {
        PyErr_WriteUnraisable(OBJECT(g));
    }
    Py_XDECREF(done);
    PyErr_Restore(error, value, trace);
}

/* What comes between its record and the program: the context's thread is woken, and handlers of signals that came during a wait run. -1: an
 * exception. */
static int announce(struct counts *c, int waited)
{
    if (c->dozing) {
        PyObject *done = PyObject_CallMethod(OBJECT(c), "stir", NULL);
        if (done == NULL) {
            return -1;
        }
        Py_DECREF(done);
    }
    return waited ? PyErr_CheckSignals() : 0;
}

/* `s` was filled from the source `c`, perhaps after a wait: its record in the window, before anything else can be delivered; then
 * what is said of it. Takes over the reference; NULL: an exception, and it is delivered again. */
PyObject *hf_lane_deliver(struct gate *g, struct counts *c, unsigned long long live_from, struct slot *s, int waited)
{
    int status = hf_deliveries_add(c, s);
    if (status == 0) {
        hf_set((PyObject **)&s->controller, OBJECT(c));
        s->live_from = live_from;
        s->live = 1;
        s->retained = 0;
        status = announce(c, waited);
    }
    if (status < 0) {
        take_back(g, c, s);
        Py_DECREF(OBJECT(s));
        return NULL;
    }
    c->delivered++;
    c->redelivered += s->entry.sequence_number < live_from;
    return OBJECT(s);
}

/* 1: a message is in `s`; 0: none; a negative number, not -1: the ring does not serve it. */
static int64_t look(struct lane *l, struct slot *s, enum hf_patience patience, long long wait_ns)
{
    struct block *block = s->block;
    PyObject *ring = l->feed->ring;
    int64_t status = 0;
    Py_INCREF(OBJECT(block)); /* C writes to it without the GIL, and reads there */
    Py_INCREF(ring);
    if (l->flows || patience != HF_WAIT) {
        int64_t within_ns = l->flows && patience != HF_NOW ? l->within_ns : 0;
        status = l->soon(l->reader, &s->entry, block->bytes, (uint64_t)block->capacity, within_ns);
    }
    if (status == 0 && patience == HF_WAIT) {
        Py_BEGIN_ALLOW_THREADS
        status = l->wait(l->reader, &s->entry, block->bytes, (uint64_t)block->capacity, l->strategy, wait_ns);
        Py_END_ALLOW_THREADS
    }
    l->flows = status == 1;
    Py_DECREF(OBJECT(block));
    Py_DECREF(ring);
    return status == -1 ? HF_USAGE : status;
}

/* enum hf_found, -1: an exception. The caller receives already. */
int hf_lane_look(struct gate *g, struct lane *l, enum hf_patience patience, long long wait_ns, PyObject **message)
{
    *message = NULL;
    struct slot *s = hf_pool_take(g->pool);
    if (s == NULL) {
        return -1;
    }
    int64_t found = HF_SMALL;
    while (found == HF_SMALL && hf_lane_serves(g, l)) { /* what the pool or a larger buffer needed may have closed it */
        found = look(l, s, patience, wait_ns);
        if (found == HF_SMALL) {
            PyObject *grown = PyObject_CallMethod(OBJECT(s), "grow", NULL);
            found = grown == NULL ? -1 : HF_SMALL;
            Py_XDECREF(grown);
        }
    }
    if (found == 1) {
        *message = hf_lane_deliver(g, l->controller, l->feed->live_from, s, patience == HF_WAIT);
        return *message == NULL ? -1 : HF_MESSAGE;
    }
    if (found != -1) {
        hf_pool_give(g->pool, s);
    }
    Py_DECREF(OBJECT(s));
    return found == -1 ? -1 : found == 0 ? HF_NOTHING : HF_OVER;
}

/* As hf_lane_look; the caller begins to receive with it: only one thread may. */
int hf_lane_take(struct gate *g, struct lane *l, enum hf_patience patience, long long wait_ns, PyObject **message)
{
    *message = NULL;
    if (g->receiving) {
        PyObject *done = PyObject_CallMethod(OBJECT(g), "_enter", NULL); /* which raises, as a rule */
        if (done == NULL) {
            return -1;
        }
        Py_DECREF(done);
    }
    g->receiving = 1;
    Py_INCREF(OBJECT(l));
    int found = hf_lane_serves(g, l) ? hf_lane_look(g, l, patience, wait_ns, message) : HF_OVER;
    Py_DECREF(OBJECT(l));
    g->receiving = 0;
    return found;
}

static PyType_Slot lane_slots[] = {{Py_tp_new, lane_new},
                                   {Py_tp_dealloc, lane_dealloc},
                                   {Py_tp_traverse, lane_traverse},
                                   {Py_tp_clear, lane_clear},
                                   {0, NULL}};
static PyType_Spec lane_spec = {"holdfast._receive.Lane", sizeof(struct lane), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, lane_slots};

int hf_lane_types(PyObject *module)
{
    hf_lane_type = hf_add_type(module, "Lane", &lane_spec);
    return hf_lane_type == NULL ? -1 : 0;
}
