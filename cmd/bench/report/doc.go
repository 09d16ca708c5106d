// Package report turns results into a table, a JSON file, and a page with plots.
//
// Nothing in it may be used by two goroutines at once. It runs nothing and knows no engine by name
// but ours and the limit.
package report
