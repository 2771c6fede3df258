package main

import (
	"syscall"
	"unsafe"
)

// System calls without the Go scheduler's bookkeeping around them: the sockets never block, and
// while the loop waits in epoll no other goroutine wants to run.

func rawRead(descriptor int, buffer []byte) (int, syscall.Errno) {
	n, _, err := syscall.RawSyscall(syscall.SYS_READ, uintptr(descriptor),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)))
	return int(n), err
}

func rawWrite(descriptor int, buffer []byte) (int, syscall.Errno) {
	n, _, err := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(descriptor),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)))
	return int(n), err
}

// poller waits for any of the connections; the event carries the connection's number.
type poller struct {
	descriptor int
	events     [64]syscall.EpollEvent
}

func newPoller() (*poller, error) {
	descriptor, err := syscall.EpollCreate1(0)
	return &poller{descriptor: descriptor}, err
}

func (p *poller) watch(operation int, c *connection, events uint32) error {
	event := syscall.EpollEvent{Events: events, Fd: int32(c.number)}
	return syscall.EpollCtl(p.descriptor, operation, c.descriptor, &event)
}

func (p *poller) wait(milliseconds int) ([]syscall.EpollEvent, error) {
	n, _, err := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.descriptor),
		uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), uintptr(milliseconds), 0, 0)
	if err == syscall.EINTR {
		return nil, nil
	}
	if err != 0 {
		return nil, err
	}
	return p.events[:n], nil
}
