package iptrace

// dice makes a walk take every way that chance could take: each roll of the first walk falls on yes, and turn changes the
// last one that has not been a no yet. It does not roll where there is no choice.
type dice struct {
	rolls []roll
	next  int
}

type roll struct {
	probability float64
	no          bool
}

func (d *dice) roll(probability float64) bool {
	if probability == 1 {
		return true
	}
	if d.next == len(d.rolls) {
		d.rolls = append(d.rolls, roll{probability: probability})
	}
	d.next++
	return !d.rolls[d.next-1].no
}

// turn prepares the next walk, and says whether there is one.
func (d *dice) turn() bool {
	d.next = 0
	for last := len(d.rolls) - 1; last >= 0; last-- {
		if !d.rolls[last].no {
			d.rolls[last].no = true
			d.rolls = d.rolls[:last+1]
			return true
		}
	}
	return false
}

// weight is the probability of the walk just done.
func (d *dice) weight() float64 {
	w := 1.0
	for _, r := range d.rolls {
		if r.no {
			w *= 1 - r.probability
		} else {
			w *= r.probability
		}
	}
	return w
}
