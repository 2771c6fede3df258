package main

import "math/bits"

// subBuckets per power of two: a reported latency is at most 1/64 above the true one.
const subBuckets = 64

// histogram counts durations in nanoseconds, in buckets whose width grows with the value.
type histogram struct {
	counts [64 * subBuckets]uint64
	total  uint64
	sum    uint64
	max    uint64
}

func (h *histogram) record(nanoseconds int64) {
	value := uint64(max(nanoseconds, 0))
	h.counts[bucketOf(value)]++
	h.total++
	h.sum += value
	h.max = max(h.max, value)
}

func bucketOf(value uint64) int {
	if value < 2*subBuckets {
		return int(value)
	}
	shift := bits.Len64(value) - 7 // 7 bits remain: the leading one and six below it
	return shift*subBuckets + int(value>>shift)
}

func bucketTop(bucket int) uint64 {
	if bucket < 2*subBuckets {
		return uint64(bucket)
	}
	shift := bucket/subBuckets - 1
	return (uint64(bucket-shift*subBuckets)+1)<<shift - 1
}

func (h *histogram) add(other *histogram) {
	for bucket, count := range other.counts {
		h.counts[bucket] += count
	}
	h.total += other.total
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

func (h *histogram) quantile(q float64) uint64 {
	rank := uint64(q * float64(h.total))
	var seen uint64
	for bucket, count := range h.counts {
		seen += count
		if seen > rank {
			return min(bucketTop(bucket), h.max)
		}
	}
	return h.max
}

func (h *histogram) latency() Latency {
	answer := Latency{
		Requests: int(h.total),
		P50:      float64(h.quantile(0.50)) / 1e3,
		P99:      float64(h.quantile(0.99)) / 1e3,
		P999:     float64(h.quantile(0.999)) / 1e3,
		Max:      float64(h.max) / 1e3,
	}
	if h.total > 0 {
		answer.Mean = float64(h.sum) / float64(h.total) / 1e3
	}
	return answer
}
