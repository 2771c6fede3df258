package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// connection is one keep-alive connection with at most one request in flight.
type connection struct {
	descriptor int
	number     int
	part       *part
	out        []byte
	sent       int
	in         []byte
	filled     int
	response   response
	started    int64
	operation  *operation
	waiting    bool // for room to write
	busy       bool // a request is in flight

	entities int    // how many the request in flight is about; -1: unknown
	key      []byte // the key that the answer to a point read must show; empty: none
	received int    // bytes of the answers to the current operation

	etags [][]byte // of the entities that only this connection updates
	turn  int      // the next of them

	asked []byte // the current query, from its question mark on
	next  []byte // the continuation to ask for, as query parameters; empty at a query's start
	page  int    // its page number in the query
	seen  int    // entities seen in the query
	walks int    // walks finished
}

var errClosed = errors.New("the server closed a connection")

func dial(part *part, number int) (*connection, error) {
	tcp, err := net.ResolveTCPAddr("tcp4", part.job.Address)
	if err != nil {
		return nil, err
	}
	descriptor, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	where := &syscall.SockaddrInet4{Port: tcp.Port}
	copy(where.Addr[:], tcp.IP.To4())
	if err := syscall.Connect(descriptor, where); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", part.job.Address, err)
	}
	if err := syscall.SetsockoptInt(descriptor, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(descriptor, true); err != nil {
		return nil, err
	}
	return &connection{descriptor: descriptor, number: number, part: part, in: make([]byte, 64<<10)}, nil
}

// send writes what the socket accepts now and says whether the whole request is sent.
func (c *connection) send() (bool, error) {
	for c.sent < len(c.out) {
		n, err := rawWrite(c.descriptor, c.out[c.sent:])
		switch err {
		case 0:
			c.sent += n
		case syscall.EAGAIN:
			return false, nil
		case syscall.EINTR:
		default:
			return false, err
		}
	}
	return true, nil
}

// receive reads what has arrived and returns the length of the answer once it is complete.
func (c *connection) receive() (int, error) {
	for {
		if c.filled == len(c.in) {
			larger := make([]byte, 2*len(c.in))
			copy(larger, c.in)
			c.in = larger
		}
		n, err := rawRead(c.descriptor, c.in[c.filled:])
		switch {
		case err == syscall.EAGAIN:
			return 0, nil
		case err == syscall.EINTR:
			continue
		case err != 0:
			return 0, err
		case n == 0:
			return 0, errors.Join(errClosed, io.EOF)
		}
		c.filled += n
		whole, failure := c.response.feed(c.in[:c.filled])
		if failure != nil || whole > 0 {
			return whole, failure
		}
		if c.filled < len(c.in) {
			return 0, nil // the socket is drained; the rest has yet to arrive
		}
	}
}

func (c *connection) head() []byte { return c.in[:c.response.headersEnd-2] }

func (c *connection) reset() {
	c.filled, c.sent, c.out = 0, 0, c.out[:0]
	c.response = response{}
}
