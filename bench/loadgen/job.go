package main

// Job is what one run of the load generator does. Exactly one of Seconds, Requests and Walks
// says when it ends: after a time, after a number of requests, or when every connection has
// followed its query's continuation to the end that many times.
type Job struct {
	Address     string  `json:"address"` // host:port
	BasePath    string  `json:"base_path"`
	Account     string  `json:"account"`
	Key         string  `json:"key"` // base64, as in a connection string
	Table       string  `json:"table"`
	Mix         []Share `json:"mix"`
	Keys        string  `json:"keys"` // "uniform" or "zipf"
	Query       string  `json:"query"`
	Unique      string  `json:"unique"` // prefix of the partition keys of new entities
	Apart       bool    `json:"apart"`  // each connection has partitions of its own for new entities
	Entities    int     `json:"entities"`
	Connections int     `json:"connections"`
	Seed        int64   `json:"seed"`
	Warmup      float64 `json:"warmup"`
	Seconds     float64 `json:"seconds"`
	Requests    int     `json:"requests"`
	Walks       int     `json:"walks"`
	// Inserts is how many a transaction has, of entities of so many Shapes, which differ in one property.
	Inserts int `json:"inserts"`
	Shapes  int `json:"shapes"`
	// Data is a file with the seeded set (dataset.go); if it is empty, the set is made, with Entities of them.
	Data string `json:"data"`
	// Matches is a text in the JSON of the entities that the query's filter lets through, for queries of one
	// {partition} each: then an answer must carry as many.
	Matches string `json:"matches"`
	// Company is what other connections do meanwhile. It ends with the job, has its own table, requests and
	// seed, and its answers are not in the job's figures.
	Company *Job `json:"company"`
	// ExpectEntities is how many entities the answer to a query must carry in all its pages together (of a
	// whole walk, in walks); -1: any number, in one page.
	ExpectEntities int `json:"expect_entities"`
	// Constant says that the server answers every request with the same 200: only that is checked.
	// answers.go checks the answers of other servers.
	Constant bool `json:"constant"`
}

// Share is one operation of a mix and its weight among the others.
type Share struct {
	Operation string `json:"operation"`
	Weight    int    `json:"weight"`
}

// Result is what one run saw. Requests, latencies and CPU are those of the measured time only;
// RequestsAll counts every answer since the first connection, for the server's CPU per request. A query
// that the server answered in several pages is one request, except in walks, where each page is one.
type Result struct {
	Elapsed          float64            `json:"elapsed"`
	Requests         int                `json:"requests"`
	RequestsAll      int                `json:"requests_all"`
	Errors           int                `json:"errors"`
	ErrorSamples     []string           `json:"error_samples"`
	BytesIn          int64              `json:"bytes_in"`
	Entities         int                `json:"entities"` // of transactions and of pages of one partition
	Latency          Latency            `json:"latency"`
	Operations       map[string]Latency `json:"operations"`
	Company          *Latency           `json:"company"`
	GeneratorSeconds float64            `json:"generator_seconds"` // CPU of this process, user and system
	GeneratorAll     float64            `json:"generator_seconds_all"`
	FirstPage        *Latency           `json:"first_page"` // walks only
	LastPages        *Latency           `json:"last_pages"` // walks only: the last tenth
}

// Latency is a histogram's answer, in microseconds.
type Latency struct {
	Requests int     `json:"requests"`
	Mean     float64 `json:"mean"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p999"`
	Max      float64 `json:"max"`
}
