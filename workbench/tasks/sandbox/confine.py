"""What a candidate process gives up before it runs a line of hostile code.

Five layers, each used where the system has it; `confine` returns the names of those that hold.
- limits: resource limits on CPU seconds, address space, file size, open files, processes (none) and core dumps.
- network: private user, network, IPC and mount namespaces (`unshare`): no route anywhere, and nothing outside can be
  traced, since the process has no rights in any other user namespace.
- disk: the working folder is a memory file system of limited size that vanishes with the process.
- files: Landlock rules: reads only from the interpreter's library, writes only in the working folder.
- calls: a seccomp filter that refuses to start processes or threads, signal, trace, open sockets, or change what
  Landlock does not cover (modes, owners, times). It holds for root and inside containers, where namespaces are
  often forbidden, and it is why nothing can escape a kill: there is never more than the one process.
Other systems than Linux have only the first. All calls go through ctypes, for os.unshare came with Python 3.12.
This module is read by a bare interpreter: standard library only. It does not know what is run or judged.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys

TYPE_CHECKING = False  # see codec
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LINUX = sys.platform == "linux"
LAYERS = ("limits", "network", "disk", "files", "calls")
MEGABYTE = 1 << 20
DISK_OPTIONS = b"size=16m,nr_inodes=1024,mode=700"

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x08000000, 0x10000000, 0x40000000
MS_NOSUID, MS_NODEV = 2, 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
SIGKILL = 9

# Landlock: https://docs.kernel.org/userspace-api/landlock.html
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION_FLAG, LANDLOCK_PATH_BENEATH = 1, 1
FILE_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}  # by version of the kernel's interface
ALL_FILE_RIGHTS = 0xFFFF  # version 5 and later
RIGHT_EXECUTE, RIGHT_WRITE, RIGHT_READ, RIGHT_LIST = 1, 2, 4, 8
ON_FILES = RIGHT_WRITE | RIGHT_READ  # the rights that a rule about a single file may hold

# Seccomp: architecture by the kernel's audit number, system calls by number.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refused with EPERM
X32_CALLS = 0x40000000  # the second numbering of x86_64
# pidfd_send_signal, io_uring_setup, open_tree .. fspick, pidfd_open, clone3, pidfd_getfd, process_madvise,
# mount_setattr, fchmodat2: one number on every architecture
COMMON_CALLS = (424, 425, 428, 429, 430, 431, 432, 433, 434, 435, 438, 440, 442, 452)
REFUSED_CALLS: dict[str, dict[str, tuple[int, ...]]] = {
    "x86_64": {
        "clone fork vfork execve execveat": (56, 57, 58, 59, 322),
        "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo": (62, 200, 234, 129, 297),
        "ptrace process_vm_readv process_vm_writev kcmp": (101, 310, 311, 312),
        "socket socketpair": (41, 53),
        "shmget msgget semget mq_open": (29, 68, 64, 240),
        "unshare setns mount umount2 pivot_root chroot open_by_handle_at": (272, 308, 165, 166, 155, 161, 304),
        "bpf perf_event_open userfaultfd add_key request_key keyctl": (321, 298, 323, 248, 249, 250),
        "prlimit64 setpriority ioprio_set move_pages migrate_pages": (302, 141, 251, 279, 256),
        "sched_setaffinity sched_setparam sched_setscheduler sched_setattr": (203, 142, 144, 314),
        "chmod fchmod fchmodat chown fchown lchown fchownat truncate": (90, 91, 268, 92, 93, 94, 260, 76),
        "utime utimes futimesat utimensat": (132, 235, 261, 280),
        "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr": (188, 189, 190, 197, 198, 199),
    },
    "aarch64": {
        "clone execve execveat": (220, 221, 281),
        "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo": (129, 130, 131, 138, 240),
        "ptrace process_vm_readv process_vm_writev kcmp": (117, 270, 271, 272),
        "socket socketpair": (198, 199),
        "shmget msgget semget mq_open": (194, 186, 190, 180),
        "unshare setns mount umount2 pivot_root chroot open_by_handle_at": (97, 268, 40, 39, 41, 51, 265),
        "bpf perf_event_open userfaultfd add_key request_key keyctl": (280, 241, 282, 217, 218, 219),
        "prlimit64 setpriority ioprio_set move_pages migrate_pages": (261, 140, 30, 239, 238),
        "sched_setaffinity sched_setparam sched_setscheduler sched_setattr": (122, 118, 119, 274),
        "fchmod fchmodat fchown fchownat truncate utimensat": (52, 53, 55, 54, 45, 88),
        "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr": (5, 6, 7, 14, 15, 16),
    },
}


def confine(folder: str, limits: dict[str, int], wanted: Sequence[str]) -> list[str]:
    """Give up everything that `wanted` names; returns what of it holds, in the order of LAYERS.

    folder: the working folder, which becomes the current one. limits: cpu_s, memory_mb, file_mb, open_files.
    """
    holds = []
    if LINUX:
        prctl(PR_SET_PDEATHSIG, SIGKILL)  # dies with the checker
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if "network" in wanted and _private_namespaces():
            holds.append("network")
            if "disk" in wanted and _memory_disk(folder):
                holds.append("disk")
        _drop_capabilities()
    os.chdir(folder)
    if "limits" in wanted and _limit_resources(limits):
        holds.append("limits")
    if LINUX and "files" in wanted and _restrict_files(folder):
        holds.append("files")
    if LINUX and "calls" in wanted and _filter_calls():
        holds.append("calls")
    return [layer for layer in LAYERS if layer in holds]


def libc() -> Any:
    """The C library that this interpreter runs on."""
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> bool:
    """One process setting of Linux; False when the kernel refuses it."""
    return libc().prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) == 0


def _limit_resources(limits: dict[str, int]) -> bool:
    """False when the system refuses one of them (macOS knows no limit on the address space)."""
    wanted = [
        (resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"] + 1),  # a signal first, a kill a second later
        (resource.RLIMIT_AS, limits["memory_mb"] * MEGABYTE, limits["memory_mb"] * MEGABYTE),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * MEGABYTE, limits["file_mb"] * MEGABYTE),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_NPROC, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ]
    outcomes = [_set_limit(*limit) for limit in wanted]  # all of them, also after a refusal
    return all(outcomes)


def _set_limit(kind: int, soft: int, hard: int) -> bool:
    known = resource.getrlimit(kind)[1]
    if known != resource.RLIM_INFINITY:
        soft, hard = min(soft, known), min(hard, known)
    try:
        resource.setrlimit(kind, (soft, hard))
    except (ValueError, OSError):
        return False
    return True


def _private_namespaces() -> bool:
    user, group = os.getuid(), os.getgid()
    if libc().unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS):
        return False
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError:  # private all the same; without the map only the memory disk is lost
        pass
    return True


def _memory_disk(folder: str) -> bool:
    return libc().mount(b"tmpfs", os.fsencode(folder), b"tmpfs", MS_NOSUID | MS_NODEV, DISK_OPTIONS) == 0


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    libc().capset(header, (ctypes.c_uint32 * 6)())


def _restrict_files(folder: str) -> bool:
    call = libc().syscall
    version = call(LANDLOCK_CREATE, None, ctypes.c_size_t(0), LANDLOCK_VERSION_FLAG)
    if version < 1:
        return False
    handled = FILE_RIGHTS.get(version, ALL_FILE_RIGHTS)
    rules = call(LANDLOCK_CREATE, ctypes.byref(ctypes.c_uint64(handled)), ctypes.c_size_t(8), 0)
    if rules < 0:
        return False
    for path, rights in _file_rules(folder, handled):
        _add_file_rule(rules, path, rights)
    restricted = call(LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return restricted


def _file_rules(folder: str, handled: int) -> list[tuple[str, int]]:
    """Paths that may be used, with the rights beneath them."""
    libraries = [os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib"), "/lib", "/lib64", "/usr/lib"]
    libraries += ["/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/dev/urandom"]
    read = [(path, RIGHT_READ | RIGHT_LIST) for path in libraries]
    return [*read, ("/dev/null", RIGHT_READ | RIGHT_WRITE), (folder, handled & ~RIGHT_EXECUTE)]


def _add_file_rule(rules: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    allowed = rights if os.path.isdir(path) else rights & ON_FILES
    rule = struct.pack("=Qi", allowed, descriptor)  # struct landlock_path_beneath_attr, packed
    libc().syscall(LANDLOCK_ADD, rules, LANDLOCK_PATH_BENEATH, ctypes.c_char_p(rule), 0)
    os.close(descriptor)


def refused_calls(machine: str) -> list[int]:
    """Numbers of the system calls that the filter refuses on this kind of machine."""
    return sorted([*COMMON_CALLS, *(number for group in REFUSED_CALLS[machine].values() for number in group)])


def _filter_program(machine: str) -> list[tuple[int, int, int, int]]:
    """(operation, jump if true, jump if false, operand): allow everything but the refused calls."""
    numbers = refused_calls(machine)
    program = [(LOAD, 0, 0, 4), (JUMP_EQUAL, 1, 0, ARCHITECTURES[machine]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    program.append((JUMP_AT_LEAST, len(numbers) + 1, 0, X32_CALLS))
    program += [(JUMP_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    return [*program, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.c_char_p))


def _filter_calls() -> bool:
    machine = os.uname().machine
    if machine not in ARCHITECTURES or sys.maxsize < 1 << 32:
        return False
    steps = _filter_program(machine)
    instructions = b"".join(struct.pack("=HBBI", *step) for step in steps)  # struct sock_filter
    program = _Program(len(steps), ctypes.c_char_p(instructions))
    zero = ctypes.c_ulong(0)
    return libc().prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program), zero, zero) == 0
