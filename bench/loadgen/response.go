package main

import (
	"bytes"
	"errors"
	"strconv"
)

// response is one answer as it arrives. feed is called with everything received so far and says
// whether it is complete; it remembers where it stopped, so that a large page is not read twice.
type response struct {
	status     int
	headersEnd int // where the body starts; 0 while the headers are incomplete
	length     int // -1: chunked
	chunkAt    int // where the next chunk's size line starts
}

var (
	blankLine           = []byte("\r\n\r\n")
	errStatusLine       = errors.New("the answer does not start with an HTTP/1.1 status line")
	errNoLength         = errors.New("the answer has neither Content-Length nor chunked encoding")
	errChunk            = errors.New("a chunk's size is not a number")
	headerContentLength = []byte("content-length")
	headerTransfer      = []byte("transfer-encoding")
)

// feed returns the length of the complete answer in bytes, or 0 while it is incomplete.
func (r *response) feed(in []byte) (int, error) {
	if r.headersEnd == 0 {
		end := bytes.Index(in, blankLine)
		if end < 0 {
			return 0, nil
		}
		if err := r.readHead(in[:end+2]); err != nil {
			return 0, err
		}
		r.headersEnd = end + 4
		r.chunkAt = r.headersEnd
	}
	if r.length >= 0 {
		if len(in) < r.headersEnd+r.length {
			return 0, nil
		}
		return r.headersEnd + r.length, nil
	}
	return r.feedChunks(in)
}

func (r *response) readHead(head []byte) error {
	if len(head) < 12 || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return errStatusLine
	}
	status, err := strconv.Atoi(string(head[9:12]))
	if err != nil {
		return errStatusLine
	}
	r.status = status
	if value := header(head, headerTransfer); len(value) > 0 {
		r.length = -1
		return nil
	}
	if value := header(head, headerContentLength); len(value) > 0 {
		r.length, err = strconv.Atoi(string(value))
		return err
	}
	if status == 204 || status == 304 {
		r.length = 0
		return nil
	}
	return errNoLength
}

func (r *response) feedChunks(in []byte) (int, error) {
	for r.chunkAt < len(in) {
		lineEnd := bytes.IndexByte(in[r.chunkAt:], '\n')
		if lineEnd < 0 {
			return 0, nil
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(in[r.chunkAt:r.chunkAt+lineEnd])), 16, 32)
		if err != nil {
			return 0, errChunk
		}
		next := r.chunkAt + lineEnd + 1 + int(size) + 2
		if next > len(in) {
			return 0, nil
		}
		r.chunkAt = next
		if size == 0 {
			return next, nil
		}
	}
	return 0, nil
}

// body returns the body of a complete answer; chunks are joined into scratch.
func (r *response) body(in, scratch []byte) []byte {
	if r.length >= 0 {
		return in[r.headersEnd : r.headersEnd+r.length]
	}
	scratch = scratch[:0]
	for at := r.headersEnd; ; {
		lineEnd := bytes.IndexByte(in[at:], '\n')
		size, _ := strconv.ParseInt(string(bytes.TrimSpace(in[at:at+lineEnd])), 16, 32)
		if size == 0 {
			return scratch
		}
		at += lineEnd + 1
		scratch = append(scratch, in[at:at+int(size)]...)
		at += int(size) + 2
	}
}

// header returns the value of a header given by its lower-case name, or nil.
func header(head, name []byte) []byte {
	for len(head) > 0 {
		end := bytes.IndexByte(head, '\n')
		if end < 0 {
			return nil
		}
		line := head[:end]
		head = head[end+1:]
		if len(line) > len(name) && line[len(name)] == ':' && equalFold(line[:len(name)], name) {
			return bytes.TrimSpace(line[len(name)+1:])
		}
	}
	return nil
}

func equalFold(text, lower []byte) bool {
	for i, char := range text {
		if 'A' <= char && char <= 'Z' {
			char += 'a' - 'A'
		}
		if char != lower[i] {
			return false
		}
	}
	return true
}
