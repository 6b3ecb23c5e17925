/* slot.h: the Python objects whose fields change with every message, and that both C and Python write. Python's classes derive from
 * them: Message from Slot, DeliveryController from Counts, Feed from Served, Receiver from Gate, the ack windows from Deliveries,
 * MessagePool from Pool. Whoever holds the GIL may write. */
#ifndef HF_PYTHON_SLOT_H
#define HF_PYTHON_SLOT_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include "base/layout.h"

#define OBJECT(o) ((PyObject *)(o))

struct deliveries; /* deliveries.c */
struct pool;       /* pool.c */
struct lane;       /* lane.c */
struct flow;       /* flow.c */

/* The memory of one message, seen by Python as read-only bytes of its length. `views` counts the buffers that are out: a view of a
 * view holds the same one. */
struct block {
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t capacity;
    Py_ssize_t length;
    Py_ssize_t views;
};

/* A receiver. */
struct gate {
    PyObject_HEAD
    PyObject *controllers; /* tuple of DeliveryController; replaced as a whole */
    PyObject *lane;        /* struct lane while one ring serves, and C may look into it alone; NULL or None */
    struct pool *pool;     /* NULL: none yet */
    char closed;
    char receiving;  /* a thread does: only one may */
    char left;       /* an iteration was left with a message in hand: the next request consumes it */
    char again;      /* something is to be delivered again, before anything else is */
    char immediate;  /* each consumed message is acknowledged at once */
    long long slots; /* messages of it that live */
};

/* One source at a receiver. */
struct counts {
    PyObject_HEAD
    PyObject *window;         /* struct deliveries, or a class of Python's with the same methods; NULL or None */
    struct deliveries *plain; /* the same, if it is the former */
    long long delivered;
    long long redelivered;
    char dozing;
};

struct served {
    PyObject_HEAD
    PyObject *ring;          /* what serves now, in place; None while a log does */
    unsigned long long turn; /* of `ring`: it was replaced so often */
    unsigned long long live_from;
    char newer;
};

struct slot {
    PyObject_HEAD
    struct hf_entry entry;
    struct block *block;
    struct gate *receiver;
    struct counts *controller; /* NULL: none yet */
    PyObject *view;            /* what `data` gave, or NULL */
    PyObject *ack_slot;        /* of a window of Python's; NULL: `record` */
    unsigned long long record, era;
    unsigned long long live_from;
    char live;
    char retained;
};

extern PyTypeObject *hf_slot_type, *hf_block_type, *hf_gate_type, *hf_counts_type, *hf_served_type, *hf_deliveries_type,
    *hf_pool_type, *hf_lane_type, *hf_flow_type;

PyTypeObject *hf_add_type(PyObject *module, const char *name, PyType_Spec *spec);
int hf_no_keywords(PyObject *keywords); /* 0: there are some, and a TypeError */
void hf_dealloc(PyObject *self, int (*clear)(PyObject *));
PyObject *hf_or_none(void *object);                                                          /* a new reference */
void hf_set(PyObject **field, PyObject *value);                                              /* which may be NULL */
int hf_set_checked(PyObject **field, PyObject *value, PyTypeObject *type, const char *name); /* -1: TypeError */
int hf_cell_types(PyObject *module);
int hf_deliveries_types(PyObject *module);
int hf_pool_types(PyObject *module);
int hf_slot_types(PyObject *module);
int hf_lane_types(PyObject *module);
int hf_gate_types(PyObject *module);
int hf_flow_types(PyObject *module);
int hf_await_type(PyObject *module);

/* deliveries.c */
int hf_deliveries_add(struct counts *c, struct slot *s);     /* -1: an exception, and no record */
int hf_deliveries_consume(struct counts *c, struct slot *s); /* -1: an exception */
PyObject *hf_ack_slot(struct slot *s);                       /* as Python names it */

/* pool.c: a message that nobody else refers to; NULL: an exception. A message that nobody uses goes back. */
struct slot *hf_pool_take(struct pool *p);
void hf_pool_give(struct pool *p, struct slot *s);

/* slot.c; -1: an exception */
int hf_slot_release(struct slot *s);
int hf_slot_forget(struct slot *s);

/* lane.c, flow.c */
enum hf_found {
    HF_OVER,    /* something else must be looked at */
    HF_MESSAGE, /* the caller's from now on */
    HF_NOTHING  /* there is none now */
};
enum hf_patience {
    HF_NOW,  /* what is there */
    HF_SOON, /* while messages come, the next one is looked for before the GIL is given away */
    HF_WAIT  /* as the strategy says, for wait_ns */
};
int hf_lane_take(struct gate *g, struct lane *l, enum hf_patience patience, long long wait_ns, PyObject **message);
int hf_lane_look(struct gate *g, struct lane *l, enum hf_patience patience, long long wait_ns, PyObject **message);
struct lane *hf_lane_of(struct gate *g); /* NULL: there is none */
int hf_lane_serves(struct gate *g, struct lane *l);
int hf_lane_is_newer(struct lane *l);
PyObject *hf_lane_deliver(struct gate *g, struct counts *c, unsigned long long live_from, struct slot *s, int waited);
int hf_flow_step(struct flow *f, int waits, PyObject **message); /* enum hf_found; -1: an exception */
int hf_flow_consume(struct flow *f);
#endif
