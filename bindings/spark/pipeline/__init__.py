"""What is done with whole topics: archive, audit, replay, report. Plain functions, each in the module of its
name; the commands are ``holdfast pipeline ...``.
"""
