/* await.c: `async for message in receiver`.
 *
 * An Awaited is the iterator and what each of its steps awaits, so that a message which is there costs no object and no turn of the
 * event loop. The class that derives from it (bindings/aio.py) has what a step calls when none is there:
 *
 *     flow()   a Flow (flow.c) while one ring serves, or None
 *     now()    the next message in any other case, or None
 *     pause()  a coroutine that gives the event loop one turn
 *     wait()   a coroutine that ends when there may be something to receive
 *     busy()   raises: another task awaits a message of this iterator
 *
 * After `most` messages in a row, or when the clock says that `slice_ns` have passed since the loop gave control last, a step begins
 * with pause(). A cancelled step has taken no message: it holds one only when it returns it. */
#include <time.h>

#include "python/slot.h"

struct awaited {
    PyObject_HEAD
    struct gate *receiver;
    struct flow *flow;
    PyObject *current; /* the message that now() gave last; of a flow, that knows its own */
    PyObject *inner;   /* the coroutine that the step under way waits in */
    PyObject *clock;   /* returns ns; NULL: CLOCK_MONOTONIC */
    long long slice_ns, since_ns;
    long most, count;
    char turned;  /* the event loop has just had its turn: who is cancelled each time would never look */
    char running; /* inside a step: whoever is called from there, and comes back, is refused */
    char looked;  /* nothing was there before the last turn of the event loop either */
};

static int awaited_traverse(struct awaited *a, visitproc visit, void *arg)
{
    Py_VISIT(a->receiver);
    Py_VISIT(a->flow);
    Py_VISIT(a->current);
    Py_VISIT(a->inner);
    Py_VISIT(a->clock);
    Py_VISIT(Py_TYPE(OBJECT(a)));
    return 0;
}

static int awaited_clear(struct awaited *a)
{
    Py_CLEAR(a->inner);
    Py_CLEAR(a->current);
    PyObject *flow = OBJECT(a->flow);
    a->flow = NULL;
    Py_XDECREF(flow);
    Py_CLEAR(a->receiver);
    Py_CLEAR(a->clock);
    return 0;
}

static void awaited_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    awaited_clear((struct awaited *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* left(): the loop was left, so what was given last is in the program's hand until the next request. A flow says so of its own.
 * The deriving class calls it in __del__, while the receiver is whole: a collection of garbage clears one after the other. */
static PyObject *awaited_left(struct awaited *a, PyObject *none)
{
    (void)none;
    PyObject *message = a->current, *flow = OBJECT(a->flow), *done = NULL;
    a->current = NULL;
    a->flow = NULL;
    Py_XDECREF(flow);
    if (message != NULL) {
        done = PyObject_CallMethod(OBJECT(a->receiver), "leave", "O", message);
        Py_DECREF(message);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    Py_RETURN_NONE;
}

/* Awaited(receiver, most, slice_ns, clock or None). */
static PyObject *awaited_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *receiver, *clock;
    long most;
    long long slice_ns;
    if (!hf_no_keywords(keywords) ||
        !PyArg_ParseTuple(args, "O!lLO:Awaited", hf_gate_type, &receiver, &most, &slice_ns, &clock)) {
        return NULL;
    }
    struct awaited *a = (struct awaited *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (a != NULL) {
        Py_INCREF(receiver);
        a->receiver = (struct gate *)receiver;
        a->most = most;
        a->slice_ns = slice_ns;
        a->count = most; /* the first step looks at the clock, and gives others a turn */
        if (clock != Py_None) {
            Py_INCREF(clock);
            a->clock = clock;
        }
    }
    return (PyObject *)a;
}

/* -1: an exception. */
static long long now_ns(struct awaited *a)
{
    if (a->clock != NULL) {
        PyObject *said = PyObject_CallNoArgs(a->clock);
        long long ns = said == NULL ? -1 : PyLong_AsLongLong(said);
        Py_XDECREF(said);
        return ns;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The step goes on in what this method gives. -1: an exception. */
static int wait_in(struct awaited *a, const char *method)
{
    a->inner = PyObject_CallMethod(OBJECT(a), method, NULL);
    return a->inner == NULL ? -1 : 0;
}

/* What was given last is consumed. -1: an exception. */
static int consume(struct awaited *a)
{
    PyObject *message = a->current;
    if (message != NULL) {
        a->current = NULL;
        PyObject *done = PyObject_CallMethod(message, "done", NULL);
        Py_DECREF(message);
        if (done == NULL) {
            return -1;
        }
        Py_DECREF(done);
    }
    struct flow *flow = a->flow;
    Py_XINCREF(OBJECT(flow)); /* what it calls may end it for the iterator: left() */
    int status = flow == NULL || hf_flow_consume(flow) >= 0 ? 0 : -1;
    Py_XDECREF(OBJECT(flow));
    return status;
}

/* 1: the event loop has not had control for long enough; -1: an exception. */
static int due(struct awaited *a)
{
    if (a->turned) {
        a->turned = 0;
        return 0;
    }
    if (a->count >= a->most) {
        return 1;
    }
    long long now = now_ns(a);
    return now < 0 ? -1 : now - a->since_ns >= a->slice_ns;
}

/* Whether this flow serves. What it calls may end it for the iterator: left(). */
static int from_flow(struct awaited *a, PyObject **message)
{
    struct flow *flow = a->flow;
    *message = NULL;
    if (flow == NULL) {
        return 0;
    }
    Py_INCREF(OBJECT(flow));
    int found = hf_flow_step(flow, 0, message);
    if (found == HF_OVER && a->flow == flow) {
        a->flow = NULL;
        Py_DECREF(OBJECT(flow));
    }
    Py_DECREF(OBJECT(flow));
    return found != HF_OVER;
}

/* A message that is there now, in whatever way; NULL without an exception: none. */
static PyObject *message_now(struct awaited *a)
{
    PyObject *message;
    int served = a->flow != NULL;
    if (from_flow(a, &message)) {
        return message;
    }
    if (!served) { /* else it has just ended: another one may end at once, too */
        PyObject *flow = PyObject_CallMethod(OBJECT(a), "flow", NULL);
        if (flow == NULL) {
            return NULL;
        }
        if (PyObject_TypeCheck(flow, hf_flow_type) && a->flow == NULL) {
            a->flow = (struct flow *)flow;
            if (from_flow(a, &message)) {
                return message;
            }
        } else {
            Py_DECREF(flow);
        }
    }
    message = PyObject_CallMethod(OBJECT(a), "now", NULL);
    if (message == Py_None) {
        Py_CLEAR(message);
    } else if (message != NULL) {
        Py_INCREF(message);
        a->current = message;
    }
    return message;
}

/* One message, or what the step waits in (`inner`), or an exception: NULL in the latter two cases. */
static PyObject *step(struct awaited *a)
{
    if (consume(a) < 0) {
        return NULL;
    }
    if (a->receiver->closed) {
        PyErr_SetNone(PyExc_StopAsyncIteration);
        return NULL;
    }
    int yields = due(a);
    if (yields != 0) {
        if (yields > 0) {
            wait_in(a, "pause");
        }
        return NULL;
    }
    PyObject *message = message_now(a);
    if (message != NULL) {
        a->count++;
        a->looked = 0;
    } else if (!PyErr_Occurred()) {
        wait_in(a, a->looked ? "wait" : "pause");
        a->looked = 1;
    }
    return message;
}

/* `sent` is what the coroutine said; its end is none of the step's. */
static PySendResult go_on(struct awaited *a, PySendResult sent, PyObject **result)
{
    while (sent == PYGEN_RETURN) {
        Py_CLEAR(*result);
        Py_CLEAR(a->inner);
        a->count = 0;
        a->since_ns = now_ns(a);
        *result = a->since_ns < 0 ? NULL : step(a);
        if (*result != NULL) {
            return PYGEN_RETURN;
        }
        if (a->inner == NULL) {
            return PYGEN_ERROR;
        }
        sent = PyIter_Send(a->inner, Py_None, result);
    }
    if (sent == PYGEN_ERROR) {
        Py_CLEAR(a->inner);
    }
    return sent;
}

/* 0: an exception, for a step is under way. */
static int enter(struct awaited *a)
{
    if (a->running) {
        PyErr_SetString(PyExc_RuntimeError, "this iterator is inside a step already");
        return 0;
    }
    a->running = 1;
    return 1;
}

static PySendResult send(struct awaited *a, PyObject *value, PyObject **result)
{
    if (a->inner == NULL) {
        *result = step(a);
        if (*result != NULL) {
            return PYGEN_RETURN;
        }
        if (a->inner == NULL) {
            return PYGEN_ERROR;
        }
        value = Py_None;
    }
    return go_on(a, PyIter_Send(a->inner, value, result), result);
}

static PySendResult awaited_send(PyObject *self, PyObject *value, PyObject **result)
{
    struct awaited *a = (struct awaited *)self;
    *result = NULL;
    if (!enter(a)) {
        return PYGEN_ERROR;
    }
    PySendResult sent = send(a, value, result);
    a->running = 0;
    return sent;
}

/* As an iterator says it: yielded, or StopIteration with the message. */
static PyObject *said(PySendResult sent, PyObject *result)
{
    if (sent == PYGEN_RETURN) {
        PyErr_SetObject(PyExc_StopIteration, result);
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *awaited_next(PyObject *self)
{
    PyObject *result;
    PySendResult sent = awaited_send(self, Py_None, &result);
    return said(sent, result);
}

static PyObject *throw(struct awaited *a, PyObject *args)
{
    PyObject *kind, *value = NULL, *trace = NULL;
    if (!PyArg_ParseTuple(args, "O|OO:throw", &kind, &value, &trace)) {
        return NULL;
    }
    if (a->inner == NULL) { /* before the first step, as a generator that has not begun */
        if (PyExceptionInstance_Check(kind)) {
            PyErr_SetObject(PyExceptionInstance_Class(kind), kind);
        } else {
            PyErr_SetObject(kind, value);
        }
        return NULL;
    }
    PyObject *method = PyObject_GetAttrString(a->inner, "throw");
    PyObject *result = method == NULL ? NULL : PyObject_CallObject(method, args);
    Py_XDECREF(method);
    if (result != NULL) {
        return result; /* it waits for something else now */
    }
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
        Py_CLEAR(a->inner);
        a->turned = 1;
        return NULL;
    }
    PyErr_Clear();
    PySendResult sent = go_on(a, PYGEN_RETURN, &result);
    return said(sent, result);
}

/* throw(type[, value[, traceback]]): a cancelled task. Where the coroutine catches it, the step goes on. */
static PyObject *awaited_throw(struct awaited *a, PyObject *args)
{
    if (!enter(a)) {
        return NULL;
    }
    PyObject *result = throw(a, args);
    a->running = 0;
    return result;
}

/* close(): the task that waits in a step is gone. */
static PyObject *awaited_close(struct awaited *a, PyObject *none)
{
    (void)none;
    if (!enter(a)) {
        return NULL;
    }
    PyObject *inner = a->inner;
    a->inner = NULL;
    a->running = 0;
    PyObject *done = inner == NULL ? NULL : PyObject_CallMethod(inner, "close", NULL);
    Py_XDECREF(inner);
    if (done == NULL && PyErr_Occurred()) {
        return NULL;
    }
    Py_XDECREF(done);
    Py_RETURN_NONE;
}

/* __aiter__; and __await__, which anext() with a default asks for at each of its steps. */
static PyObject *awaited_self(PyObject *self)
{
    Py_INCREF(self);
    return self;
}

/* __anext__: a task asks for a message. Only one at a time. */
static PyObject *awaited_anext(PyObject *self)
{
    struct awaited *a = (struct awaited *)self;
    if (a->inner != NULL) {
        PyObject *done = PyObject_CallMethod(self, "busy", NULL);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    return awaited_self(self);
}

static PyMethodDef awaited_methods[] = {{"throw", (PyCFunction)awaited_throw, METH_VARARGS, NULL},
                                        {"close", (PyCFunction)awaited_close, METH_NOARGS, NULL},
                                        {"left", (PyCFunction)awaited_left, METH_NOARGS, NULL},
                                        {NULL}};
static PyType_Slot awaited_slots[] = {
    {Py_tp_new, awaited_new},       {Py_tp_dealloc, awaited_dealloc}, {Py_tp_traverse, awaited_traverse},
    {Py_tp_clear, awaited_clear},   {Py_tp_methods, awaited_methods}, {Py_tp_iter, awaited_self},
    {Py_tp_iternext, awaited_next}, {Py_am_aiter, awaited_self},      {Py_am_anext, awaited_anext},
    {Py_am_await, awaited_self},    {Py_am_send, awaited_send},       {0, NULL}};
static PyType_Spec awaited_spec = {"holdfast._receive.Awaited", sizeof(struct awaited), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, awaited_slots};

int hf_await_type(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&awaited_spec);
    int status = type == NULL ? -1 : PyModule_AddObjectRef(module, "Awaited", type);
    Py_XDECREF(type);
    return status;
}
