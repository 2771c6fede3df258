package main

import (
	"fmt"
	"syscall"
	"time"
)

const (
	errorSamplesMax   = 5
	answerSeconds     = 120 // a run fails if the server is silent for this long
	waitMilliseconds  = 1000
	mixPositions      = 1000
	answersLeast      = 4  // per connection, before a timed job may end ...
	extendedSeconds   = 60 // ... unless this much time has passed
	lastPagesFraction = 10
)

// load drives all connections of one job until it ends.
type load struct {
	job        *Job
	parts      []*part
	poller     *poller
	conns      []*connection
	result     Result
	unprimed   int // entities whose ETag is not known yet; the clock starts when there are none
	base       time.Time
	begin, end int64 // of the measured time; end 0: not known
	cpuBegin   time.Duration
	inFlight   int
	issued     int
	measured   int // answers counted
	lastAnswer int64
	first      histogram
	last       histogram
	scratch    []byte
	next       []byte
}

func newLoad(job *Job) (*load, error) {
	parts, err := parts(job)
	if err != nil {
		return nil, err
	}
	poller, err := newPoller()
	if err != nil {
		return nil, err
	}
	l := &load{job: job, parts: parts, poller: poller, base: time.Now()}
	for _, part := range parts {
		for range part.job.Connections {
			c, err := dial(part, len(l.conns))
			if err != nil {
				return nil, err
			}
			if err := poller.watch(syscall.EPOLL_CTL_ADD, c, syscall.EPOLLIN); err != nil {
				return nil, err
			}
			l.conns = append(l.conns, c)
		}
	}
	l.ownEntities()
	return l, nil
}

func (l *load) ownEntities() {
	if l.parts[0].mix[0].name != "update" {
		return
	}
	own := max(min(ownedEntities, l.job.Entities/l.job.Connections), 1)
	for _, c := range l.conns[:l.job.Connections] {
		c.etags = make([][]byte, own)
	}
	l.unprimed = own * l.job.Connections
}

func (l *load) now() int64 { return int64(time.Since(l.base)) }

func (l *load) run() (*Result, error) {
	if l.unprimed == 0 {
		l.startClock(l.now())
	}
	for _, c := range l.conns {
		if err := l.issue(c, l.now()); err != nil {
			return nil, err
		}
	}
	for l.inFlight > 0 {
		events, err := l.poller.wait(waitMilliseconds)
		if err != nil {
			return nil, err
		}
		for i := range events {
			if err := l.serve(l.conns[events[i].Fd], events[i].Events); err != nil {
				return nil, err
			}
		}
		if len(events) == 0 && l.now()-l.lastAnswer > int64(answerSeconds*time.Second) {
			return nil, fmt.Errorf("no answer for %d seconds", answerSeconds)
		}
	}
	l.stopClock(l.now())
	l.summarise()
	return &l.result, nil
}

// serve handles one event: more room to write, or bytes of an answer.
func (l *load) serve(c *connection, events uint32) error {
	if c.waiting && events&syscall.EPOLLOUT != 0 {
		if err := l.push(c); err != nil {
			return err
		}
	}
	if events&(syscall.EPOLLIN|syscall.EPOLLHUP|syscall.EPOLLERR) == 0 {
		return nil
	}
	if !c.busy { // it has no more requests, and the server may close it
		return l.poller.watch(syscall.EPOLL_CTL_DEL, c, 0)
	}
	whole, err := c.receive()
	if err != nil {
		return fmt.Errorf("connection %d, %s: %w", c.number, c.operation.name, err)
	}
	if whole == 0 {
		return nil
	}
	now := l.now()
	l.account(c, whole, now)
	l.inFlight--
	c.busy = false
	l.lastAnswer = now
	return l.issue(c, now)
}

// issue sends the connection's next request unless the job is over.
func (l *load) issue(c *connection, now int64) error {
	if l.timeIsOver(now) {
		l.stopClock(now)
	}
	if l.finished(c) {
		return nil
	}
	c.reset()
	goesOn := len(c.next) > 0
	if !goesOn {
		c.operation = c.part.next()
	}
	c.part.writer.signer.renewDate(now)
	c.part.writer.write(c)
	l.issued++
	l.inFlight++
	c.busy = true
	if !goesOn || c.part.job.Walks > 0 {
		c.started = l.now()
	}
	return l.push(c)
}

// timeIsOver says whether a timed job has measured for long enough: its time, or with slow requests
// until every connection has had a few answers on average.
func (l *load) timeIsOver(now int64) bool {
	if l.end > 0 || l.begin == 0 || l.job.Seconds == 0 {
		return false
	}
	measured := now - l.begin
	if measured < int64(l.job.Seconds*float64(time.Second)) {
		return false
	}
	return l.measured >= answersLeast*l.job.Connections || measured > int64(extendedSeconds*time.Second)
}

func (l *load) finished(c *connection) bool {
	switch {
	case l.end > 0 || l.result.Errors > 0: // one wrong answer is enough: the run has no figures
		return true
	case c.part.company:
		return false
	case c.part.writer.exhausted():
		return true
	case l.job.Walks > 0:
		return c.walks >= l.job.Walks
	case l.job.Requests > 0:
		return l.issued >= l.job.Requests
	}
	return false
}

func (l *load) push(c *connection) error {
	done, err := c.send()
	if err != nil {
		return fmt.Errorf("connection %d cannot send: %w", c.number, err)
	}
	if done == !c.waiting {
		return nil
	}
	c.waiting = !done
	events := uint32(syscall.EPOLLIN)
	if c.waiting {
		events |= syscall.EPOLLOUT
	}
	return l.poller.watch(syscall.EPOLL_CTL_MOD, c, events)
}

// account checks one complete answer and counts it where it belongs. A query with a continuation is counted
// when its last page has come, except in walks, which count each page.
func (l *load) account(c *connection, whole int, now int64) {
	page := c.page
	c.received += whole
	complaint, goesOn := l.complaint(c)
	if complaint != "" {
		l.result.Errors++
		if len(l.result.ErrorSamples) < errorSamplesMax {
			l.result.ErrorSamples = append(l.result.ErrorSamples, c.operation.name+": "+complaint)
		}
		c.startAnew()
	}
	if c.part.job.Walks > 0 && !goesOn {
		c.walks++
	}
	if goesOn && c.part.job.Walks == 0 {
		return
	}
	received := c.received
	c.received = 0
	l.result.RequestsAll++
	if c.operation.name == "update" {
		l.keepETag(c)
	}
	if l.begin == 0 {
		if l.unprimed == 0 {
			l.startClock(now)
		}
		return
	}
	if now < l.begin || l.end > 0 {
		return
	}
	latency := now - c.started
	c.operation.hist.record(latency)
	if c.part.company {
		return
	}
	l.measured++
	l.result.BytesIn += int64(received)
	l.result.Entities += max(c.entities, 0)
	if l.job.Walks > 0 {
		pages := l.job.Entities / partitionEntities
		if page == 0 {
			l.first.record(latency)
		} else if page >= pages-pages/lastPagesFraction {
			l.last.record(latency)
		}
	}
}

func (l *load) keepETag(c *connection) {
	owned := c.turn % len(c.etags)
	c.turn++
	tag := header(c.head(), []byte("etag"))
	if l.job.Constant {
		tag = []byte(`W/"constant"`)
	}
	if len(c.etags[owned]) == 0 && len(tag) > 0 {
		l.unprimed--
	}
	c.etags[owned] = append(c.etags[owned][:0], tag...)
}

func (l *load) startClock(now int64) {
	l.begin = max(now+int64(l.job.Warmup*float64(time.Second)), 1)
	l.cpuBegin = processTime()
	l.lastAnswer = now
}

func (l *load) stopClock(now int64) {
	if l.end == 0 {
		l.end = now
		l.result.Elapsed = float64(now-l.begin) / float64(time.Second)
		// The generator works as hard in the warm-up as afterwards: its CPU is shared by time.
		used := (processTime() - l.cpuBegin).Seconds()
		l.result.GeneratorSeconds = used * l.result.Elapsed / (l.result.Elapsed + l.job.Warmup)
	}
}

func (l *load) summarise() {
	all, operations := l.parts[0].latencies()
	l.result.GeneratorAll = processTime().Seconds()
	l.result.Operations = operations
	l.result.Latency = all.latency()
	l.result.Requests = int(all.total)
	if len(l.parts) > 1 {
		company, _ := l.parts[1].latencies()
		latency := company.latency()
		l.result.Company = &latency
	}
	if l.first.total > 0 {
		first := l.first.latency()
		l.result.FirstPage = &first
	}
	if l.last.total > 0 {
		last := l.last.latency()
		l.result.LastPages = &last
	}
}

func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
