#!/usr/bin/env python3
"""terminal.py COLUMNS COMMAND...: runs a command on a terminal of so many columns, and prints what the last line that was drawn
over has come to, and how wide the widest was. With --lines behind the command: all lines that stay on the terminal."""
import fcntl
import os
import pty
import struct
import sys
import termios

process, terminal = pty.fork()
if process == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], [word for word in sys.argv[2:] if word != "--lines"])
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
if sys.argv[-1] == "--lines":
    print(*(line.split("\r\x1b[K")[-1] for line in content.decode().replace("\r\n", "\n").split("\n")), sep="\n")
    sys.exit()
lines = [line.split("\r")[0] for line in content.decode().split("\r\x1b[K")[1:]]
print(lines[-1])
print("widest", max(map(len, lines)))
