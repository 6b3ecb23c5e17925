/* slot.c: where one message lands, and how the program lets it go. */
#include "python/slot.h"

PyTypeObject *hf_slot_type, *hf_block_type;
static PyObject *release_view; /* memoryview.release */

static const char RELEASED[] =
    "this message was released, or its receiver closed: its buffer belongs to another one now";

/* ---- Block ---- */

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Py_ssize_t capacity;
    if (!hf_no_keywords(keywords) || !PyArg_ParseTuple(args, "n:Block", &capacity)) {
        return NULL;
    }
    if (capacity < 1) {
        return PyErr_Format(PyExc_ValueError, "a block of %zd bytes", capacity);
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct block *block = (struct block *)allocate(type, 0);
    if (block == NULL) {
        return NULL;
    }
    block->bytes = PyMem_Malloc((size_t)capacity);
    if (block->bytes == NULL) {
        Py_DECREF(block);
        return PyErr_NoMemory();
    }
    block->capacity = block->length = capacity;
    return (PyObject *)block;
}

static void block_dealloc(struct block *block)
{
    PyTypeObject *type = Py_TYPE(OBJECT(block));
    PyMem_Free(block->bytes);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(block);
    Py_DECREF(type);
}

static int block_get(struct block *block, Py_buffer *view, int flags)
{
    int status = PyBuffer_FillInfo(view, (PyObject *)block, block->bytes, block->length, 1, flags);
    block->views += status == 0;
    return status;
}

static void block_release(struct block *block, Py_buffer *view)
{
    (void)view;
    block->views--;
}

static PyObject *block_address(struct block *block, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(block->bytes);
}

static PyGetSetDef block_fields[] = {{"address", (getter)block_address, NULL, NULL, NULL}, {NULL}};
static PyMemberDef block_members[] = {{"capacity", T_PYSSIZET, offsetof(struct block, capacity), READONLY, NULL},
                                      {"views", T_PYSSIZET, offsetof(struct block, views), READONLY, NULL},
                                      {NULL}};
static PyType_Slot block_slots[] = {{Py_tp_new, block_new},
                                    {Py_tp_dealloc, block_dealloc},
                                    {Py_tp_getset, block_fields},
                                    {Py_tp_members, block_members},
                                    {Py_bf_getbuffer, block_get},
                                    {Py_bf_releasebuffer, block_release},
                                    {0, NULL}};
static PyType_Spec block_spec = {"holdfast._receive.Block", sizeof(struct block), 0, Py_TPFLAGS_DEFAULT, block_slots};

/* ---- Slot ---- */

static int slot_traverse(struct slot *s, visitproc visit, void *arg)
{
    Py_VISIT(s->block);
    Py_VISIT(s->receiver);
    Py_VISIT(s->controller);
    Py_VISIT(s->view);
    Py_VISIT(s->ack_slot);
    Py_VISIT(Py_TYPE(OBJECT(s)));
    return 0;
}

static int slot_clear(PyObject *self)
{
    struct slot *s = (struct slot *)self;
    Py_CLEAR(s->view);
    Py_CLEAR(s->block);
    if (s->receiver != NULL) {
        s->receiver->slots--;
    }
    Py_CLEAR(s->receiver);
    Py_CLEAR(s->controller);
    Py_CLEAR(s->ack_slot);
    return 0;
}

/* NULL and ValueError where nothing may be asked of it any more. */
static struct slot *usable(struct slot *s)
{
    if (s->live && s->controller != NULL && s->block != NULL && s->entry.length <= (size_t)s->block->capacity &&
        s->receiver != NULL && !s->receiver->closed) {
        return s;
    }
    PyErr_SetString(PyExc_ValueError, RELEASED);
    return NULL;
}

static PyObject *slot_data(struct slot *s, void *closure)
{
    (void)closure;
    if (usable(s) == NULL) {
        return NULL;
    }
    if (s->view != NULL && PyObject_Size(s->view) < 0) { /* the program has ended it, as `with msg.data` does */
        PyErr_Clear();
        Py_CLEAR(s->view);
    }
    if (s->view == NULL) {
        s->block->length = (Py_ssize_t)s->entry.length;
        s->view = PyMemoryView_FromObject((PyObject *)s->block);
    }
    Py_XINCREF(s->view);
    return s->view;
}

static PyObject *slot_bytes(struct slot *s, PyObject *none)
{
    (void)none;
    return usable(s) ? PyBytes_FromStringAndSize((char *)s->block->bytes, (Py_ssize_t)s->entry.length) : NULL;
}

static PyObject *slot_from(struct slot *s, PyObject *none)
{
    (void)none;
    if (usable(s) == NULL) {
        return NULL;
    }
    Py_INCREF(OBJECT(s->controller));
    return OBJECT(s->controller);
}

static Py_ssize_t slot_length(struct slot *s)
{
    return usable(s) ? (Py_ssize_t)s->entry.length : -1;
}

/* A message is something, with bytes or without: `while msg := receiver.receive()` goes on at an empty one. */
static int slot_is_true(struct slot *s)
{
    (void)s;
    return 1;
}

static PyObject *slot_number(struct slot *s, void *closure)
{
    (void)closure;
    return usable(s) ? PyLong_FromUnsignedLongLong(s->entry.sequence_number) : NULL;
}

static PyObject *slot_time(struct slot *s, void *closure)
{
    (void)closure;
    return usable(s) ? PyLong_FromLongLong(s->entry.timestamp_ns) : NULL;
}

static PyObject *slot_released(struct slot *s, void *closure)
{
    (void)closure;
    return PyBool_FromLong(!s->live || s->receiver == NULL || s->receiver->closed);
}

static PyObject *slot_address(struct slot *s, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(&s->entry);
}

static PyObject *slot_capacity(struct slot *s, void *closure)
{
    (void)closure;
    return PyLong_FromSsize_t(s->block ? s->block->capacity : 0);
}

static PyObject *slot_block(struct slot *s, void *closure)
{
    (void)closure;
    return hf_or_none(s->block);
}

static int slot_set_block(struct slot *s, PyObject *value, void *closure)
{
    (void)closure;
    return hf_set_checked((PyObject **)&s->block, value, hf_block_type, "block");
}

static PyObject *slot_controller(struct slot *s, void *closure)
{
    (void)closure;
    return hf_or_none(s->controller);
}

static int slot_set_controller(struct slot *s, PyObject *value, void *closure)
{
    (void)closure;
    return hf_set_checked((PyObject **)&s->controller, value, hf_counts_type, "_controller");
}

static PyObject *slot_ack_slot(struct slot *s, void *closure)
{
    (void)closure;
    return hf_ack_slot(s);
}

static PyObject *slot_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *receiver;
    if (!hf_no_keywords(keywords) || !PyArg_ParseTuple(args, "O!:Slot", hf_gate_type, &receiver)) {
        return NULL;
    }
    struct slot *s = (struct slot *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (s != NULL) {
        Py_INCREF(receiver);
        s->receiver = (struct gate *)receiver;
        s->receiver->slots++;
    }
    return (PyObject *)s;
}

/* Ends what `data` gave; 1: a view of the memory is still out, -1: an exception. */
static int untie(struct slot *s)
{
    if (s->view != NULL) {
        PyObject *view = s->view;
        s->view = NULL;
        if (Py_REFCNT(view) > 1) { /* the program has it: it may not read the next message through it */
            PyObject *done = PyObject_CallFunctionObjArgs(release_view, view, NULL);
            if (done == NULL && !PyErr_ExceptionMatches(PyExc_BufferError)) {
                Py_DECREF(view);
                return -1;
            }
            PyErr_Clear(); /* BufferError: somebody looks through it, which `views` says */
            Py_XDECREF(done);
        }
        Py_DECREF(view);
    }
    return s->block != NULL && s->block->views > 0;
}

int hf_slot_forget(struct slot *s)
{
    s->live = 0;
    int out = untie(s);
    if (out > 0) { /* somebody looks at the memory still: it is theirs now */
        PyObject *done = PyObject_CallMethod(OBJECT(s), "renew", NULL);
        out = done == NULL ? -1 : 0;
        Py_XDECREF(done);
    }
    if (out == 0 && s->receiver != NULL) {
        hf_pool_give(s->receiver->pool, s);
    }
    return out;
}

int hf_slot_release(struct slot *s)
{
    if (!s->live) {
        return 0;
    }
    s->live = 0;
    struct counts *c = s->controller;
    if (c != NULL && s->receiver != NULL) {
        Py_INCREF(OBJECT(c));
        int status = hf_deliveries_consume(c, s);
        Py_DECREF(OBJECT(c));
        if (status < 0) {
            s->live = 1; /* it may be repeated */
            return -1;
        }
    }
    return hf_slot_forget(s);
}

static PyObject *none_or(int status)
{
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *slot_forget(struct slot *s, PyObject *none)
{
    (void)none;
    return none_or(hf_slot_forget(s));
}

static PyObject *slot_release(struct slot *s, PyObject *none)
{
    (void)none;
    return none_or(hf_slot_release(s));
}

static PyObject *slot_done(struct slot *s, PyObject *none)
{
    (void)none;
    return none_or(s->retained ? 0 : hf_slot_release(s));
}

static PyGetSetDef slot_fields[] = {
    {"data", (getter)slot_data, NULL, "The payload, a read-only view. Raises ValueError after release.", NULL},
    {"sequence_number", (getter)slot_number, NULL, "Of its last fragment.", NULL},
    {"timestamp_ns", (getter)slot_time, NULL, "CLOCK_REALTIME at publish, nanoseconds.", NULL},
    {"released", (getter)slot_released, NULL, "It was consumed, or the receiver was closed.", NULL},
    {"entry_address", (getter)slot_address, NULL, NULL, NULL},
    {"block", (getter)slot_block, (setter)slot_set_block, NULL, NULL},
    {"capacity", (getter)slot_capacity, NULL, "Bytes of the buffer.", NULL},
    {"_controller", (getter)slot_controller, (setter)slot_set_controller, NULL, NULL},
    {"_ack_slot", (getter)slot_ack_slot, NULL, NULL, NULL},
    {NULL}};
static PyMethodDef slot_methods[] = {
    {"__bytes__", (PyCFunction)slot_bytes, METH_NOARGS, NULL},
    {"_from", (PyCFunction)slot_from, METH_NOARGS, NULL},
    {"release", (PyCFunction)slot_release, METH_NOARGS,
     "release($self, /)\n--\n\n"
     "Consumes the message: it counts as acknowledged with the next batch of acks.\n\n"
     "Twice is a no-op. Any thread."},
    {"done", (PyCFunction)slot_done, METH_NOARGS,
     "done($self, /)\n--\n\nAn iteration asks for the next one: this one is consumed, unless it is retained."},
    {"forget", (PyCFunction)slot_forget, METH_NOARGS,
     "forget($self, /)\n--\n\nEnds the message without consuming it, and gives it back to the pool."},
    {NULL}};
#define ENTRY(field) (offsetof(struct slot, entry) + offsetof(struct hf_entry, field))
static PyMemberDef slot_members[] = {{"first_number", T_ULONGLONG, ENTRY(first_sequence_number), READONLY, NULL},
                                     {"last_number", T_ULONGLONG, ENTRY(sequence_number), READONLY, NULL},
                                     {"length", T_UINT, ENTRY(length), READONLY, NULL},
                                     {"entry_flags", T_USHORT, ENTRY(flags), READONLY, NULL},
                                     {"entry_fragments", T_USHORT, ENTRY(fragments), READONLY, NULL},
                                     {"_receiver", T_OBJECT, offsetof(struct slot, receiver), READONLY, NULL},
                                     {"_live_from", T_ULONGLONG, offsetof(struct slot, live_from), 0, NULL},
                                     {"_live", T_BOOL, offsetof(struct slot, live), 0, NULL},
                                     {"_retained", T_BOOL, offsetof(struct slot, retained), 0, NULL},
                                     {NULL}};

static void slot_dealloc(PyObject *self)
{
    hf_dealloc(self, slot_clear);
}

static PyType_Slot slot_slots[] = {{Py_tp_new, slot_new},           {Py_tp_dealloc, slot_dealloc},
                                   {Py_tp_traverse, slot_traverse}, {Py_tp_clear, slot_clear},
                                   {Py_tp_getset, slot_fields},     {Py_tp_members, slot_members},
                                   {Py_tp_methods, slot_methods},   {Py_sq_length, slot_length},
                                   {Py_nb_bool, slot_is_true},      {0, NULL}};
static PyType_Spec slot_spec = {"holdfast._receive.Slot", sizeof(struct slot), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slot_slots};

int hf_slot_types(PyObject *module)
{
    hf_block_type = hf_add_type(module, "Block", &block_spec);
    hf_slot_type = hf_add_type(module, "Slot", &slot_spec);
    release_view = PyObject_GetAttrString(OBJECT(&PyMemoryView_Type), "release");
    return hf_block_type == NULL || hf_slot_type == NULL || release_view == NULL ? -1 : 0;
}
