package workload

// bigs have ten times the rows: more than the caches of a processor, and trees a level higher.
var bigs = []Workload{
	big(batchWorkload("big-load", hashed, true, 1)),
	big(getWorkload("big-get", "gets at random in one transaction", 1, 1.3, Fixture{Loaded: true},
		getsInOne)),
	big(getWorkload("big-get-2", "the same by 2 goroutines", 2, 1.3, Fixture{Loaded: true}, getsInOne)),
}

func big(w Workload) Workload {
	w.Big = true
	w.About += "; ten times the rows"
	w.Fixture.PerMill = 10_000_000
	return w
}
