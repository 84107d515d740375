#!/usr/bin/env python3
"""terminal.py COLUMNS COMMAND...: runs a command on a terminal of so many columns, and prints what the last line that was drawn
over has come to, and how wide the widest was."""
import fcntl
import os
import pty
import struct
import sys
import termios

process, terminal = pty.fork()
if process == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
content = b""
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:  # the other end is closed
        break
    if not part:
        break
    content += part
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, content
lines = [line.split("\r")[0] for line in content.decode().split("\r\x1b[K")[1:]]
print(lines[-1])
print("widest", max(map(len, lines)))
