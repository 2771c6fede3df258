package main

import (
	"fmt"
	"math"
	"math/rand"
)

// partitionEntities is how many consecutive entities of the seeded set share a partition: one
// full page of the service.
const partitionEntities = 1000

// keyChooser draws the number of a seeded entity.
type keyChooser interface{ next() int }

func newKeyChooser(distribution string, entities int, random *rand.Rand) (keyChooser, error) {
	entities = max(entities, 1)
	switch distribution {
	case "uniform":
		return &uniformKeys{entities, random}, nil
	case "zipf":
		return newZipfKeys(entities, random), nil
	}
	return nil, fmt.Errorf("unknown key distribution %q", distribution)
}

type uniformKeys struct {
	entities int
	random   *rand.Rand
}

func (k *uniformKeys) next() int { return k.random.Intn(k.entities) }

// zipfKeys is YCSB's scrambled Zipfian distribution, theta 0.99, after Gray et al., "Quickly
// generating billion-record synthetic databases"; math/rand's Zipf only knows exponents above 1.
type zipfKeys struct {
	entities         int
	random           *rand.Rand
	zeta, alpha, eta float64
	half             float64
}

const zipfTheta = 0.99

func newZipfKeys(entities int, random *rand.Rand) *zipfKeys {
	zeta := 0.0
	for i := 1; i <= entities; i++ {
		zeta += 1 / math.Pow(float64(i), zipfTheta)
	}
	half := math.Pow(0.5, zipfTheta)
	return &zipfKeys{
		entities: entities,
		random:   random,
		zeta:     zeta,
		alpha:    1 / (1 - zipfTheta),
		eta:      (1 - math.Pow(2/float64(entities), 1-zipfTheta)) / (1 - (1+half)/zeta),
		half:     half,
	}
}

func (k *zipfKeys) next() int {
	draw := k.random.Float64()
	rank := 0
	switch spot := draw * k.zeta; {
	case spot < 1:
		rank = 0
	case spot < 1+k.half:
		rank = 1
	default:
		rank = int(float64(k.entities) * math.Pow(k.eta*draw-k.eta+1, k.alpha))
	}
	return int(scramble(uint64(rank)) % uint64(k.entities))
}

// scramble is FNV-1a over eight bytes: it spreads the popular ranks over the whole key space.
func scramble(value uint64) uint64 {
	hashed := uint64(14695981039346656037)
	for range 8 {
		hashed = (hashed ^ (value & 0xff)) * 1099511628211
		value >>= 8
	}
	return hashed
}

// appendPadded appends a number in decimal with leading zeros, so that numbers sort as keys.
func appendPadded(out []byte, number, width int) []byte {
	start := len(out)
	for range width {
		out = append(out, '0')
	}
	for i := start + width - 1; i >= start && number > 0; i-- {
		out[i] = byte('0' + number%10)
		number /= 10
	}
	return out
}
