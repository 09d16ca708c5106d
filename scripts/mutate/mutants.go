package main

// mutants gives the whole list.
func mutants() (all []mutant) {
	lists := [][]mutant{
		logMutants, pageMutants, storeMutants, applyMutants, expiryMutants, upkeepMutants,
	}
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
