package workload

import (
	"math"
	"math/rand/v2"
)

// zipfian draws from [0, n) as YCSB does: "Quickly Generating Billion-Record Synthetic Databases"
// by Gray et al., with YCSB's constant. Low numbers are the popular ones; hashed keys scatter them.
type zipfian struct {
	n                        float64
	alpha, zetan, eta, half2 float64
}

const zipfTheta = 0.99

func newZipfian(n int) *zipfian {
	zeta := func(n int) (sum float64) {
		for i := 1; i <= n; i++ {
			sum += 1 / math.Pow(float64(i), zipfTheta)
		}
		return sum
	}
	z := &zipfian{n: float64(n), alpha: 1 / (1 - zipfTheta), zetan: zeta(n), half2: 1 +
		math.Pow(0.5, zipfTheta)}
	z.eta = (1 - math.Pow(2/z.n, 1-zipfTheta)) / (1 - zeta(2)/z.zetan)
	return z
}

func (z *zipfian) next(rng *rand.Rand) int {
	u := rng.Float64()
	switch uz := u * z.zetan; {
	case uz < 1:
		return 0
	case uz < z.half2:
		return 1
	}
	return min(int(z.n*math.Pow(z.eta*u-z.eta+1, z.alpha)), int(z.n)-1)
}
