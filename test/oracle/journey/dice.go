package journey

// Dice makes a walk take every way that chance could take: each roll of the first walk falls on yes, and Turn changes the
// last one that has not been a no yet. It does not roll where there is no choice.
type Dice struct {
	rolls []roll
	next  int
}

type roll struct {
	probability float64
	no          bool
}

// Roll says yes or no, yes with the probability.
func (d *Dice) Roll(probability float64) bool {
	if probability == 1 {
		return true
	}
	if d.next == len(d.rolls) {
		d.rolls = append(d.rolls, roll{probability: probability})
	}
	d.next++
	return !d.rolls[d.next-1].no
}

// Turn prepares the next walk, and says whether there is one.
func (d *Dice) Turn() bool {
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

// Weight is the probability of the walk just done.
func (d *Dice) Weight() float64 {
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
