package main

// mutants gives the whole list.
func mutants() (all []mutant) {
	for _, list := range [][]mutant{logMutants, pageMutants, storeMutants, expiryMutants, upkeepMutants} {
		all = append(all, list...)
	}
	return all
}
