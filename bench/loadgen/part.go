package main

import "fmt"

// part has the connections that do one job: the job itself, or its company.
type part struct {
	job     *Job
	writer  *writer
	mix     []*operation // a table to draw from, with each operation as often as its weight says
	company bool
}

func newPart(job *Job, company bool) (*part, error) {
	writer, err := newWriter(job)
	if err != nil {
		return nil, err
	}
	p := &part{job: job, writer: writer, company: company}
	total := 0
	for _, share := range job.Mix {
		total += share.Weight
	}
	for _, share := range job.Mix {
		op, known := operations[share.Operation]
		if !known || share.Weight <= 0 {
			return nil, fmt.Errorf("unknown operation %q or no weight", share.Operation)
		}
		op.name, op.hist = share.Operation, &histogram{}
		if job.Constant {
			op.status = 200
		}
		for range max(share.Weight*mixPositions/total, 1) {
			p.mix = append(p.mix, &op)
		}
	}
	if len(p.mix) == 0 {
		return nil, fmt.Errorf("the mix is empty")
	}
	return p, nil
}

// parts returns the job's part and, if it has company, that part too; both use the same server.
func parts(job *Job) ([]*part, error) {
	own, err := newPart(job, false)
	if err != nil || job.Company == nil {
		return []*part{own}, err
	}
	company := job.Company
	company.Address, company.BasePath, company.Constant = job.Address, job.BasePath, job.Constant
	company.Account, company.Key = job.Account, job.Key
	other, err := newPart(company, true)
	return []*part{own, other}, err
}

// next returns the operation of a connection's next request.
func (p *part) next() *operation {
	if len(p.mix) == 1 {
		return p.mix[0]
	}
	return p.mix[p.writer.random.Intn(len(p.mix))]
}

// latencies returns those of all its operations together, and of each.
func (p *part) latencies() (*histogram, map[string]Latency) {
	var all histogram
	each := map[string]Latency{}
	for _, op := range p.mix {
		if _, counted := each[op.name]; !counted {
			each[op.name] = op.hist.latency()
			all.add(op.hist)
		}
	}
	return &all, each
}
