package server

// commands is the command table: every command by its name.
var commands map[string]*command

// The handlers look up other commands: the table is filled after they are initialized.
func init() {
	commands = make(map[string]*command)
	for _, group := range [][]commandSpec{
		connectionTable, serverTable, keyTable, stringTable, hashTable,
		listTable, setTable, zsetTable, bitTable, pubsubTable, scriptingTable,
	} {
		for _, spec := range group {
			commands[spec.name] = &command{spec, len(commands)}
		}
	}
}

const (
	read      = flagRead
	readFast  = flagRead | flagFast
	write     = flagWrite
	writeFast = flagWrite | flagFast
	session   = flagNoAuth | flagFast
	blocking  = flagWrite | flagBlocking
)

var connectionTable = []commandSpec{
	{"ping", -1, flagFast | flagPubSub, noKeys, pingCommand},
	{"echo", 2, flagFast, noKeys, echoCommand},
	{"quit", -1, session | flagNow | flagPubSub, noKeys, quitCommand},
	{"select", 2, flagFast, noKeys, selectCommand},
	{"auth", -2, session | flagNever, noKeys, authCommand},
	{"hello", -1, session | flagNever, noKeys, helloCommand},
	{"reset", 1, session | flagNow | flagPubSub, noKeys, resetCommand},
	{"client", -2, flagFast, noKeys, clientCommand},
	{"multi", 1, flagFast | flagNow, noKeys, multiCommand},
	{"exec", 1, flagNow, noKeys, execCommand},
	{"discard", 1, flagFast | flagNow, noKeys, discardCommand},
	{"watch", -2, flagFast | flagTurn | flagNow, allKeys, watchCommand},
	{"unwatch", 1, flagFast, noKeys, unwatchCommand},
}

var scriptingTable = []commandSpec{
	{"eval", -3, write | flagScript, keySpec{numkeys: 2}, evalCommand},
	{"evalsha", -3, write | flagScript, keySpec{numkeys: 2}, evalCommand},
	{"eval_ro", -3, read, keySpec{numkeys: 2}, evalCommand},
	{"evalsha_ro", -3, read, keySpec{numkeys: 2}, evalCommand},
	{"script", -2, 0, noKeys, scriptCommand},
}

var pubsubTable = []commandSpec{
	{"subscribe", -2, flagPubSub, noKeys, subscribeCommand},
	{"unsubscribe", -1, flagPubSub, noKeys, unsubscribeCommand},
	{"psubscribe", -2, flagPubSub, noKeys, subscribeCommand},
	{"punsubscribe", -1, flagPubSub, noKeys, unsubscribeCommand},
	{"ssubscribe", -2, flagPubSub, noKeys, subscribeCommand},
	{"sunsubscribe", -1, flagPubSub, noKeys, unsubscribeCommand},
	{"publish", 3, flagFast, noKeys, publishCommand},
	{"spublish", 3, flagFast, noKeys, publishCommand},
	{"pubsub", -2, 0, noKeys, pubsubCommand},
}

var serverTable = []commandSpec{
	{"command", -1, 0, noKeys, commandCommand},
	{"acl", -2, flagAdmin, noKeys, aclCommand},
	{"info", -1, 0, noKeys, infoCommand},
	{"config", -2, flagAdmin, noKeys, configCommand},
	{"dbsize", 1, readFast, noKeys, dbsizeCommand},
	{"flushdb", -1, write, noKeys, flushdbCommand},
	{"flushall", -1, write, noKeys, flushallCommand},
	{"swapdb", 3, writeFast, noKeys, swapdbCommand},
	{"time", 1, flagFast, noKeys, timeCommand},
	{"shutdown", -1, flagAdmin | flagNever, noKeys, shutdownCommand},
	{"save", 1, flagAdmin | flagNever | flagAlone, noKeys, saveCommand},
	{"bgsave", -1, flagAdmin, noKeys, bgsaveCommand},
	{"ebb.backup", 1, flagAdmin | flagNever | flagAlone, noKeys, streamBackupCommand},
	{"monitor", 1, flagAdmin | flagNever, noKeys, monitorCommand},
	{"lastsave", 1, flagFast, noKeys, lastsaveCommand},
	{"role", 1, flagFast, noKeys, roleCommand},
	{"wait", 3, 0, noKeys, waitCommand},
	{"slowlog", -2, flagAdmin, noKeys, slowlogCommand},
	{"latency", -2, flagAdmin, noKeys, latencyCommand},
	{"debug", -2, flagAdmin | flagNever | flagAlone, noKeys, debugCommand},
	{"memory", -2, read, keySpec{first: 2, last: 2, step: 1}, memoryCommand},
	{"lolwut", -1, flagFast, noKeys, lolwutCommand},
}

var keyTable = []commandSpec{
	{"del", -2, write, allKeys, delCommand},
	{"unlink", -2, writeFast, allKeys, delCommand},
	{"exists", -2, readFast, allKeys, existsCommand},
	{"touch", -2, readFast, allKeys, existsCommand},
	{"type", 2, readFast, oneKey, typeCommand},
	{"rename", 3, write, twoKeys, renameCommand},
	{"renamenx", 3, writeFast, twoKeys, renameCommand},
	{"copy", -3, write, twoKeys, copyCommand},
	{"move", 3, writeFast, oneKey, moveCommand},
	{"randomkey", 1, read, noKeys, randomkeyCommand},
	{"keys", 2, read, noKeys, keysCommand},
	{"scan", -2, read, noKeys, scanCommand},
	{"expire", -3, writeFast, oneKey, expireCommand},
	{"pexpire", -3, writeFast, oneKey, expireCommand},
	{"expireat", -3, writeFast, oneKey, expireCommand},
	{"pexpireat", -3, writeFast, oneKey, expireCommand},
	{"ttl", 2, readFast, oneKey, ttlCommand},
	{"pttl", 2, readFast, oneKey, ttlCommand},
	{"expiretime", 2, readFast, oneKey, ttlCommand},
	{"pexpiretime", 2, readFast, oneKey, ttlCommand},
	{"persist", 2, writeFast, oneKey, persistCommand},
	{"object", -2, read, keySpec{first: 2, last: 2, step: 1}, objectCommand},
	{"sort", -2, write, oneKey, sortCommand},
	{"sort_ro", -2, read, oneKey, sortCommand},
	{"dump", 2, read, oneKey, dumpCommand},
	{"restore", -4, write, oneKey, restoreCommand},
}

var stringTable = []commandSpec{
	{"get", 2, readFast, oneKey, getCommand},
	{"set", -3, write, oneKey, setCommand},
	{"setnx", 3, writeFast, oneKey, setnxCommand},
	{"setex", 4, write, oneKey, setexCommand},
	{"psetex", 4, write, oneKey, setexCommand},
	{"getset", 3, writeFast, oneKey, getsetCommand},
	{"getdel", 2, writeFast, oneKey, getdelCommand},
	{"getex", -2, writeFast, oneKey, getexCommand},
	{"mget", -2, readFast, allKeys, mgetCommand},
	{"mset", -3, write, pairs, msetCommand},
	{"msetnx", -3, write, pairs, msetCommand},
	{"append", 3, writeFast, oneKey, appendCommand},
	{"strlen", 2, readFast, oneKey, strlenCommand},
	{"getrange", 4, read, oneKey, getrangeCommand},
	{"substr", 4, read, oneKey, getrangeCommand},
	{"setrange", 4, write, oneKey, setrangeCommand},
	{"incr", 2, writeFast, oneKey, incrCommand},
	{"decr", 2, writeFast, oneKey, incrCommand},
	{"incrby", 3, writeFast, oneKey, incrCommand},
	{"decrby", 3, writeFast, oneKey, incrCommand},
	{"incrbyfloat", 3, writeFast, oneKey, incrbyfloatCommand},
	{"lcs", -3, read, twoKeys, lcsCommand},
}

var bitTable = []commandSpec{
	{"setbit", 4, write, oneKey, setbitCommand},
	{"getbit", 3, readFast, oneKey, getbitCommand},
	{"bitcount", -2, read, oneKey, bitcountCommand},
	{"bitpos", -3, read, oneKey, bitposCommand},
	{"bitop", -4, write, keySpec{first: 2, last: -1, step: 1}, bitopCommand},
	{"bitfield", -2, write, oneKey, bitfieldCommand},
	{"bitfield_ro", -2, readFast, oneKey, bitfieldCommand},
}

var hashTable = []commandSpec{
	{"hset", -4, writeFast, oneKey, hsetCommand},
	{"hmset", -4, writeFast, oneKey, hsetCommand},
	{"hsetnx", 4, writeFast, oneKey, hsetnxCommand},
	{"hget", 3, readFast, oneKey, hgetCommand},
	{"hmget", -3, readFast, oneKey, hmgetCommand},
	{"hgetall", 2, read, oneKey, hgetallCommand},
	{"hkeys", 2, read, oneKey, hgetallCommand},
	{"hvals", 2, read, oneKey, hgetallCommand},
	{"hdel", -3, writeFast, oneKey, removeCommand},
	{"hexists", 3, readFast, oneKey, hexistsCommand},
	{"hlen", 2, readFast, oneKey, cardCommand},
	{"hstrlen", 3, readFast, oneKey, hstrlenCommand},
	{"hincrby", 4, writeFast, oneKey, hincrbyCommand},
	{"hincrbyfloat", 4, writeFast, oneKey, hincrbyfloatCommand},
	{"hrandfield", -2, read, oneKey, randomCommand},
	{"hscan", -3, read, oneKey, collectionScanCommand},
	{"hexpire", -6, writeFast, oneKey, hexpireCommand},
	{"hpexpire", -6, writeFast, oneKey, hexpireCommand},
	{"hexpireat", -6, writeFast, oneKey, hexpireCommand},
	{"hpexpireat", -6, writeFast, oneKey, hexpireCommand},
	{"httl", -5, readFast, oneKey, httlCommand},
	{"hpttl", -5, readFast, oneKey, httlCommand},
	{"hexpiretime", -5, readFast, oneKey, httlCommand},
	{"hpexpiretime", -5, readFast, oneKey, httlCommand},
	{"hpersist", -5, writeFast, oneKey, hpersistCommand},
	{"hgetex", -5, writeFast, oneKey, hgetexCommand},
	{"hsetex", -6, writeFast, oneKey, hsetexCommand},
	{"hgetdel", -5, writeFast, oneKey, hgetdelCommand},
}

var listTable = []commandSpec{
	{"lpush", -3, writeFast, oneKey, pushCommand},
	{"rpush", -3, writeFast, oneKey, pushCommand},
	{"lpushx", -3, writeFast, oneKey, pushCommand},
	{"rpushx", -3, writeFast, oneKey, pushCommand},
	{"lpop", -2, writeFast, oneKey, popCommand},
	{"rpop", -2, writeFast, oneKey, popCommand},
	{"llen", 2, readFast, oneKey, cardCommand},
	{"lrange", 4, read, oneKey, lrangeCommand},
	{"lindex", 3, read, oneKey, lindexCommand},
	{"lset", 4, write, oneKey, lsetCommand},
	{"lrem", 4, write, oneKey, lremCommand},
	{"ltrim", 4, write, oneKey, ltrimCommand},
	{"linsert", 5, write, oneKey, linsertCommand},
	{"lpos", -3, read, oneKey, lposCommand},
	{"lmove", 5, write, twoKeys, lmoveCommand},
	{"rpoplpush", 3, write, twoKeys, lmoveCommand},
	{"lmpop", -4, write, keySpec{numkeys: 1}, lmpopCommand},
	{"blpop", -3, blocking, keysAndTimeout, blpopCommand},
	{"brpop", -3, blocking, keysAndTimeout, blpopCommand},
	{"blmove", 6, blocking, twoKeys, lmoveCommand},
	{"brpoplpush", 4, blocking, twoKeys, lmoveCommand},
	{"blmpop", -5, blocking, keySpec{numkeys: 2}, lmpopCommand},
}

var setTable = []commandSpec{
	{"sadd", -3, writeFast, oneKey, saddCommand},
	{"srem", -3, writeFast, oneKey, removeCommand},
	{"sismember", 3, readFast, oneKey, sismemberCommand},
	{"smismember", -3, readFast, oneKey, sismemberCommand},
	{"smembers", 2, read, oneKey, smembersCommand},
	{"scard", 2, readFast, oneKey, cardCommand},
	{"smove", 4, writeFast, twoKeys, smoveCommand},
	{"spop", -2, writeFast, oneKey, spopCommand},
	{"srandmember", -2, read, oneKey, randomCommand},
	{"sscan", -3, read, oneKey, collectionScanCommand},
	{"sunion", -2, read, allKeys, combineCommand},
	{"sinter", -2, read, allKeys, combineCommand},
	{"sdiff", -2, read, allKeys, combineCommand},
	{"sunionstore", -3, write, allKeys, combineStoreCommand},
	{"sinterstore", -3, write, allKeys, combineStoreCommand},
	{"sdiffstore", -3, write, allKeys, combineStoreCommand},
	{"sintercard", -3, read, keySpec{numkeys: 1}, sintercardCommand},
}

var zsetTable = []commandSpec{
	{"zadd", -4, writeFast, oneKey, zaddCommand},
	{"zincrby", 4, writeFast, oneKey, zincrbyCommand},
	{"zrem", -3, writeFast, oneKey, removeCommand},
	{"zcard", 2, readFast, oneKey, cardCommand},
	{"zscore", 3, readFast, oneKey, zscoreCommand},
	{"zmscore", -3, readFast, oneKey, zscoreCommand},
	{"zrank", -3, read, oneKey, zrankCommand},
	{"zrevrank", -3, read, oneKey, zrankCommand},
	{"zcount", 4, read, oneKey, zcountCommand},
	{"zlexcount", 4, read, oneKey, zcountCommand},
	{"zrange", -4, read, oneKey, zrangeCommand},
	{"zrevrange", -4, read, oneKey, zrangeCommand},
	{"zrangebyscore", -4, read, oneKey, zrangeCommand},
	{"zrevrangebyscore", -4, read, oneKey, zrangeCommand},
	{"zrangebylex", -4, read, oneKey, zrangeCommand},
	{"zrevrangebylex", -4, read, oneKey, zrangeCommand},
	{"zrangestore", -5, write, twoKeys, zrangestoreCommand},
	{"zremrangebyrank", 4, write, oneKey, zremrangeCommand},
	{"zremrangebyscore", 4, write, oneKey, zremrangeCommand},
	{"zremrangebylex", 4, write, oneKey, zremrangeCommand},
	{"zpopmin", -2, writeFast, oneKey, zpopCommand},
	{"zpopmax", -2, writeFast, oneKey, zpopCommand},
	{"zmpop", -4, write, keySpec{numkeys: 1}, zmpopCommand},
	{"bzpopmin", -3, blocking, keysAndTimeout, bzpopCommand},
	{"bzpopmax", -3, blocking, keysAndTimeout, bzpopCommand},
	{"bzmpop", -5, blocking, keySpec{numkeys: 2}, zmpopCommand},
	{"zrandmember", -2, read, oneKey, randomCommand},
	{"zscan", -3, read, oneKey, collectionScanCommand},
	{"zunion", -3, read, keySpec{numkeys: 1}, zcombineCommand},
	{"zinter", -3, read, keySpec{numkeys: 1}, zcombineCommand},
	{"zdiff", -3, read, keySpec{numkeys: 1}, zcombineCommand},
	{"zunionstore", -4, write, targetAndKeys, zcombineStoreCommand},
	{"zinterstore", -4, write, targetAndKeys, zcombineStoreCommand},
	{"zdiffstore", -4, write, targetAndKeys, zcombineStoreCommand},
	{"zintercard", -3, read, keySpec{numkeys: 1}, zintercardCommand},
}
