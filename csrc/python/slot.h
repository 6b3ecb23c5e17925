/* slot.h: the Python objects whose fields change with every message, and that both C (flow.c) and Python write. Python's classes
 * derive from them: Message from Slot, DeliveryController from Counts, Feed from Served, Receiver from Gate, ack windows from Passed. Whoever
 * holds the GIL may write. */
#ifndef HF_PYTHON_SLOT_H
#define HF_PYTHON_SLOT_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include "base/layout.h"

#define OBJECT(o) ((PyObject *)(o))

/* The memory of one message, seen by Python as read-only bytes of its length. `views` counts the buffers that are out: a view of a
 * view holds the same one. */
struct block {
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t capacity;
    Py_ssize_t length;
    Py_ssize_t views;
};

struct gate {
    PyObject_HEAD
    PyObject *controllers; /* tuple of DeliveryController; replaced as a whole */
    PyObject *iterated;    /* the current message of an iteration; NULL or None: there is none */
    char closed;
    char receiving;  /* a thread does: only one may */
    char left;       /* an iteration was left with a message in hand: the next request consumes it */
    long long slots; /* messages of it that live */
};

struct passed {
    PyObject_HEAD
    unsigned long long passed_below; /* see engine/receiver/ack_window.py */
};

struct counts {
    PyObject_HEAD
    long long delivered;
    long long redelivered;
    char dozing;
};

struct served {
    PyObject_HEAD
    PyObject *ring; /* what serves now, in place; None while a log does */
    unsigned long long live_from;
    char newer;
};

struct slot {
    PyObject_HEAD
    struct hf_entry entry;
    struct block *block;
    struct gate *receiver;
    PyObject *controller; /* struct counts, or NULL */
    PyObject *view;       /* what `data` gave, or NULL */
    PyObject *ack_slot;   /* of the ack window; hf_iterated: none yet */
    unsigned long long live_from;
    char live;
    char retained;
};

extern PyObject *hf_iterated;
extern PyTypeObject *hf_slot_type, *hf_block_type, *hf_gate_type, *hf_counts_type, *hf_served_type, *hf_passed_type;

int hf_no_keywords(PyObject *keywords); /* 0: there are some, and a TypeError */
int hf_slot_types(PyObject *module);
int hf_flow_types(PyObject *module);
int hf_await_type(PyObject *module);
struct flow; /* flow.c: the loop of `for message in receiver` */
extern PyTypeObject *hf_flow_type;
enum hf_flow_found {
    HF_FLOW_OVER,    /* something else must be looked at: the loop has ended */
    HF_FLOW_MESSAGE, /* the caller's from now on */
    HF_FLOW_NOTHING  /* there is none now; only where it does not wait */
};
int hf_flow_step(struct flow *f, int waits, PyObject **message); /* enum hf_flow_found; -1: an exception */
int hf_flow_consume(struct flow *f);
int hf_slot_untie(struct slot *s); /* ends what `data` gave; 1: a view of the memory is still out, -1: an exception */
#endif
