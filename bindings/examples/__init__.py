"""UM's example programs, written for holdfast: ``python -m holdfast.examples.umesrc --help``.

Nothing here is loaded by ``import holdfast``. Each program is one small file with ``main(argv) -> int``; what
they share is in ``common`` (how a program starts and ends) and ``printing`` (events and messages as lines).
"""
