"""A server as its operator has it: metrics, log lines, control from other processes.

:mod:`metrics` declares all metrics, :mod:`endpoint` answers Prometheus with them; :mod:`control` declares the commands
that other processes of the same user may send; :mod:`log` declares the lines of the log; :mod:`answers` is the small
server in front of metrics and control, whose clients can neither fill its memory nor stop it.
"""
