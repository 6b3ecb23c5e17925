/* deliveries.c: what a receiver was given of one source, and has consumed: the part of an ack window that changes with every message
 * (engine/receiver/ack_window.py, which sweeps, grows and takes back).
 *
 * A record is (first number, last number, tag); the tag is 2 * slot while it is delivered, and 2 * slot + 1 once it is consumed. Slots
 * run freely, so an old one never means a new record. Where messages are consumed in order, the head follows at once; where they are
 * not, a sweep finds it. While `moving`, Python works on the records: then the head stays where it is.
 *
 * An explicit window has no records: a slot is the number that its delivery begins with, and `era` says how many incarnations of the
 * source were known by then. Python names both as one integer, the era above 64 bits. */
#include "python/slot.h"

PyTypeObject *hf_deliveries_type;

struct record {
    int64_t first, last;
    uint64_t tag;
};

struct deliveries {
    PyObject_HEAD
    Py_buffer memory; /* of the records; `obj` NULL: none yet */
    struct record *records;
    unsigned long long mask, head, tail;
    unsigned long long ack;          /* behind the last number of the record before `head` */
    unsigned long long passed_below; /* behind the last number that was delivered */
    unsigned long long era;
    char is_explicit;
    char moving;
    char counted; /* the deriving class counts what is out: each delivery and consumption is told to it */
};

static int deliveries_traverse(struct deliveries *d, visitproc visit, void *arg)
{
    Py_VISIT(d->memory.obj);
    Py_VISIT(Py_TYPE(OBJECT(d)));
    return 0;
}

static int deliveries_clear(PyObject *self)
{
    struct deliveries *d = (struct deliveries *)self;
    d->records = NULL;
    PyBuffer_Release(&d->memory);
    return 0;
}

static void deliveries_dealloc(PyObject *self)
{
    hf_dealloc(self, deliveries_clear);
}

/* use(memory): the records are there from now on. At once: whoever consumes marks either the old ones or the new ones. */
static PyObject *deliveries_use(struct deliveries *d, PyObject *memory)
{
    Py_buffer taken, before = d->memory;
    if (PyObject_GetBuffer(memory, &taken, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    size_t records = (size_t)taken.len / sizeof(struct record);
    if (records == 0 || (records & (records - 1)) != 0 || (uintptr_t)taken.buf % sizeof(int64_t) != 0) {
        PyBuffer_Release(&taken);
        return PyErr_Format(PyExc_ValueError, "Deliveries: %zu records: a power of two, aligned", records);
    }
    d->memory = taken;
    d->records = taken.buf;
    d->mask = records - 1;
    PyBuffer_Release(&before);
    Py_RETURN_NONE;
}

/* -1: an exception. */
static int add(struct deliveries *d, unsigned long long first, unsigned long long last, unsigned long long *slot)
{
    if (d->is_explicit) {
        d->passed_below = last + 1;
        *slot = first;
        return 0;
    }
    if (d->records == NULL || d->tail - d->head > d->mask) {
        PyObject *done = PyObject_CallMethod(OBJECT(d), "make_room", NULL);
        if (done == NULL) {
            return -1;
        }
        Py_DECREF(done);
        if (d->records == NULL || d->tail - d->head > d->mask) {
            PyErr_SetString(PyExc_RuntimeError, "Deliveries: make_room has made none");
            return -1;
        }
    }
    struct record *record = d->records + (d->tail & d->mask);
    record->first = (int64_t)first;
    record->last = (int64_t)last;
    record->tag = 2 * d->tail;
    *slot = d->tail++;
    d->passed_below = last + 1;
    return 0;
}

static void consume(struct deliveries *d, unsigned long long slot)
{
    if (d->is_explicit || d->records == NULL ||
        slot - d->head >= d->tail - d->head) { /* passed already, or none of this window's */
        return;
    }
    struct record *record = d->records + (slot & d->mask);
    if (record->tag != 2 * slot) {
        return;
    }
    record->tag = 2 * slot + 1;
    if (slot == d->head && !d->moving) {
        unsigned long long ack = (unsigned long long)record->last + 1;
        d->head = slot + 1;
        d->ack = ack > d->ack ? ack : d->ack;
    }
}

static PyObject *as_python(unsigned long long slot, unsigned long long era)
{
    PyObject *number = PyLong_FromUnsignedLongLong(slot);
    if (number == NULL || era == 0) {
        return number;
    }
    PyObject *high = PyLong_FromUnsignedLongLong(era), *bits = PyLong_FromLong(64);
    PyObject *shifted = high != NULL && bits != NULL ? PyNumber_Lshift(high, bits) : NULL;
    PyObject *both = shifted != NULL ? PyNumber_Add(shifted, number) : NULL;
    Py_XDECREF(high);
    Py_XDECREF(bits);
    Py_XDECREF(shifted);
    Py_DECREF(number);
    return both;
}

PyObject *hf_ack_slot(struct slot *s)
{
    if (s->ack_slot == NULL) {
        return as_python(s->record, s->era);
    }
    Py_INCREF(s->ack_slot);
    return s->ack_slot;
}

/* NULL: the window is told by a call. */
static struct deliveries *plain(struct counts *c)
{
    return c->plain != NULL && !c->plain->counted ? c->plain : NULL;
}

int hf_deliveries_add(struct counts *c, struct slot *s)
{
    PyObject *window = c->window, *before = s->ack_slot;
    unsigned long long first = s->entry.first_sequence_number, last = s->entry.sequence_number;
    if (window == NULL || window == Py_None) {
        PyErr_SetString(PyExc_RuntimeError, "a message came from a source that has not begun");
        return -1;
    }
    struct deliveries *d = plain(c);
    PyObject *slot = NULL;
    int status = 0;
    Py_INCREF(window);
    if (d != NULL) {
        status = add(d, first, last, &s->record);
        s->era = d->era;
    } else {
        slot = PyObject_CallMethod(window, "delivered", "KK", first, last);
        status = slot == NULL ? -1 : 0;
    }
    Py_DECREF(window);
    if (status == 0) {
        s->ack_slot = slot;
        Py_XDECREF(before);
    }
    return status;
}

int hf_deliveries_consume(struct counts *c, struct slot *s)
{
    PyObject *window = c->window;
    struct deliveries *d = plain(c);
    if (d != NULL && s->ack_slot == NULL && !s->receiver->immediate) {
        consume(d, s->record);
        return 0;
    }
    if (window == NULL || window == Py_None) {
        return 0;
    }
    PyObject *done = PyObject_CallMethod(OBJECT(s), "consumed_by_call", NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *deliveries_delivered(struct deliveries *d, PyObject *args)
{
    unsigned long long first, last, slot;
    if (!PyArg_ParseTuple(args, "KK:delivered", &first, &last) || add(d, first, last, &slot) < 0) {
        return NULL;
    }
    return as_python(slot, d->is_explicit ? d->era : 0);
}

static PyObject *deliveries_consumed(struct deliveries *d, PyObject *slot)
{
    if (!d->is_explicit) { /* there a slot may have more than 64 bits, and means nothing here */
        unsigned long long number = PyLong_AsUnsignedLongLong(slot);
        if (PyErr_Occurred()) {
            return NULL;
        }
        consume(d, number);
    }
    Py_RETURN_NONE;
}

static PyMethodDef deliveries_methods[] = {
    {"use", (PyCFunction)deliveries_use, METH_O, NULL},
    {"delivered", (PyCFunction)deliveries_delivered, METH_VARARGS,
     "delivered($self, first, last, /)\n--\n\n"
     "Record that numbers first..last go to the user, as one unit; return the slot to give to `consumed`.\n\n"
     "Raises UsageError (HF_FULL) when the user holds more than the maximum of messages unreleased."},
    {"consumed", (PyCFunction)deliveries_consumed, METH_O,
     "consumed($self, slot, /)\n--\n\nRecord that the user is done with a slot. A second time is a no-op."},
    {NULL}};
#define FIELD(name, type, field) {name, type, offsetof(struct deliveries, field), 0, NULL}
static PyMemberDef deliveries_members[] = {FIELD("head", T_ULONGLONG, head),
                                           FIELD("tail", T_ULONGLONG, tail),
                                           FIELD("swept", T_ULONGLONG, ack),
                                           FIELD("passed_below", T_ULONGLONG, passed_below),
                                           FIELD("era", T_ULONGLONG, era),
                                           FIELD("is_explicit", T_BOOL, is_explicit),
                                           FIELD("moving", T_BOOL, moving),
                                           FIELD("counted", T_BOOL, counted),
                                           {NULL}};
static PyType_Slot deliveries_slots[] = {{Py_tp_dealloc, deliveries_dealloc}, {Py_tp_traverse, deliveries_traverse},
                                         {Py_tp_clear, deliveries_clear},     {Py_tp_methods, deliveries_methods},
                                         {Py_tp_members, deliveries_members}, {0, NULL}};
static PyType_Spec deliveries_spec = {"holdfast._receive.Deliveries", sizeof(struct deliveries), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, deliveries_slots};

int hf_deliveries_types(PyObject *module)
{
    hf_deliveries_type = hf_add_type(module, "Deliveries", &deliveries_spec);
    return hf_deliveries_type == NULL ? -1 : 0;
}
