/* pool.c: messages that wait to be used again.
 *
 * A message may come back while a variable still refers to it (`for message in receiver` binds the next one only when it has it). So
 * the one that came back last is taken if it is free, else the one before, whose memory is warm as well. Where the program keeps both,
 * they go to the other end, behind which the longest waiting come. */
#include "python/slot.h"

PyTypeObject *hf_pool_type;

struct pool {
    PyObject_HEAD
    PyObject **waiting; /* a ring of `room` places, a power of two */
    size_t first, count, room;
    long long size; /* kept at most */
};

static int pool_traverse(struct pool *p, visitproc visit, void *arg)
{
    for (size_t i = 0; i < p->count; i++) {
        Py_VISIT(p->waiting[(p->first + i) & (p->room - 1)]);
    }
    Py_VISIT(Py_TYPE(OBJECT(p)));
    return 0;
}

static PyObject *last_of(struct pool *p)
{
    return p->count == 0 ? NULL : p->waiting[(p->first + --p->count) & (p->room - 1)];
}

static int pool_clear(PyObject *self)
{
    struct pool *p = (struct pool *)self;
    PyObject *message;
    while ((message = last_of(p)) != NULL) {
        Py_DECREF(message);
    }
    return 0;
}

static void pool_dealloc(PyObject *self)
{
    PyObject **waiting = ((struct pool *)self)->waiting;
    PyObject_GC_UnTrack(self);
    pool_clear(self);
    ((struct pool *)self)->waiting = NULL;
    PyMem_Free(waiting);
    hf_dealloc(self, pool_clear);
}

static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)args; /* the deriving class's */
    (void)keywords;
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

/* 0: it does not fit. Takes over the reference. */
static int put(struct pool *p, PyObject *message, int at_the_end)
{
    if (p->count == p->room) {
        size_t room = p->room == 0 ? 16 : 2 * p->room;
        PyObject **waiting = PyMem_Malloc(room * sizeof(PyObject *));
        if (waiting == NULL) {
            return 0;
        }
        for (size_t i = 0; i < p->count; i++) {
            waiting[i] = p->waiting[(p->first + i) & (p->room - 1)];
        }
        PyMem_Free(p->waiting);
        p->waiting = waiting;
        p->room = room;
        p->first = 0;
    }
    if (at_the_end) {
        p->waiting[(p->first + p->count) & (p->room - 1)] = message;
    } else {
        p->first = (p->first - 1) & (p->room - 1);
        p->waiting[p->first] = message;
    }
    p->count++;
    return 1;
}

/* The reference is the only one left, so nobody can make another. */
static int is_free(PyObject *message)
{
    return Py_REFCNT(message) == 1;
}

static PyObject *waiting_one(struct pool *p)
{
    PyObject *last = last_of(p);
    if (last == NULL || is_free(last)) {
        return last;
    }
    PyObject *before = last_of(p);
    if (before != NULL && is_free(before)) {
        put(p, last, 1);
        return before;
    }
    if (before != NULL) {
        put(p, before, 0);
    }
    put(p, last, 0);
    for (int looks = 0; looks < 2; looks++) {
        PyObject *oldest = last_of(p);
        if (is_free(oldest)) {
            return oldest;
        }
        put(p, oldest, 0);
    }
    return NULL;
}

struct slot *hf_pool_take(struct pool *p)
{
    if (p == NULL) {
        PyErr_SetString(PyExc_TypeError, "a receiver without a pool");
        return NULL;
    }
    PyObject *message = waiting_one(p);
    if (message == NULL) {
        message = PyObject_CallMethod(OBJECT(p), "make", NULL);
        if (message != NULL && !PyObject_TypeCheck(message, hf_slot_type)) {
            Py_CLEAR(message);
            PyErr_SetString(PyExc_TypeError, "the pool made something else than a message");
        }
    }
    if (message != NULL && ((struct slot *)message)->block == NULL) {
        PyErr_SetString(PyExc_TypeError, "the pool has a message without memory");
        Py_CLEAR(message);
    }
    return (struct slot *)message;
}

void hf_pool_give(struct pool *p, struct slot *s)
{
    if (p != NULL && (long long)p->count < p->size) {
        Py_INCREF(OBJECT(s));
        if (!put(p, OBJECT(s), 1)) {
            Py_DECREF(OBJECT(s));
        }
    }
}

static PyObject *pool_take(PyObject *self, PyObject *none)
{
    (void)none;
    return OBJECT(hf_pool_take((struct pool *)self));
}

static PyObject *pool_give(PyObject *self, PyObject *message)
{
    if (!PyObject_TypeCheck(message, hf_slot_type)) {
        PyErr_SetString(PyExc_TypeError, "give takes a message");
        return NULL;
    }
    hf_pool_give((struct pool *)self, (struct slot *)message);
    Py_RETURN_NONE;
}

static Py_ssize_t pool_length(struct pool *p)
{
    return (Py_ssize_t)p->count;
}

static PyObject *pool_bytes(struct pool *p, void *closure)
{
    unsigned long long bytes = 0;
    (void)closure;
    for (size_t i = 0; i < p->count; i++) {
        struct block *block = ((struct slot *)p->waiting[(p->first + i) & (p->room - 1)])->block;
        bytes += block != NULL ? (unsigned long long)block->capacity : 0;
    }
    return PyLong_FromUnsignedLongLong(bytes);
}

static PyMethodDef pool_methods[] = {
    {"take", pool_take, METH_NOARGS, "take($self, /)\n--\n\nA message that nobody else refers to."},
    {"give", pool_give, METH_O,
     "give($self, message, /)\n--\n\nBack from use; a variable may still refer to it. Any thread."},
    {NULL}};
static PyGetSetDef pool_fields[] = {{"bytes", (getter)pool_bytes, NULL, "Bytes of the buffers that wait.", NULL},
                                    {NULL}};
static PyMemberDef pool_members[] = {{"size", T_LONGLONG, offsetof(struct pool, size), 0, NULL}, {NULL}};
static PyType_Slot pool_slots[] = {
    {Py_tp_new, pool_new},         {Py_tp_dealloc, pool_dealloc}, {Py_tp_traverse, pool_traverse},
    {Py_tp_clear, pool_clear},     {Py_tp_methods, pool_methods}, {Py_tp_getset, pool_fields},
    {Py_tp_members, pool_members}, {Py_sq_length, pool_length},   {0, NULL}};
static PyType_Spec pool_spec = {"holdfast._receive.Pool", sizeof(struct pool), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, pool_slots};

int hf_pool_types(PyObject *module)
{
    hf_pool_type = hf_add_type(module, "Pool", &pool_spec);
    return hf_pool_type == NULL ? -1 : 0;
}
