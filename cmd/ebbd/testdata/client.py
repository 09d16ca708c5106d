# Uses the Python client as its documentation does; prints ok.
import sys
import redis

r = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
assert r.set("k", "v", ex=60) is True
assert r.get("k") == "v" and 0 < r.ttl("k") <= 60
assert r.hset("h", mapping={"a": 1, "b": 2}) == 2
assert r.hgetall("h") == {"a": "1", "b": "2"}
assert r.zadd("z", {"m": 1.5}) == 1 and r.zrange("z", 0, -1, withscores=True) == [("m", 1.5)]
assert r.rpush("l", 1, 2, 3) == 3 and r.lpop("l", 2) == ["1", "2"]
with r.pipeline() as p:
    p.watch("k")
    r.set("k", "other")
    p.multi()
    p.set("k", "lost")
    try:
        p.execute()
        raise AssertionError("WATCH did not see the change")
    except redis.WatchError:
        pass
assert r.pipeline().incr("n").incr("n").execute() == [1, 2]
assert sorted(r.scan_iter(count=1)) == ["h", "k", "l", "n", "z"]
assert r.info()["redis_version"] and r.config_get("appendfsync") == {"appendfsync": "always"}
try:
    r.lpush("k", 1)
    raise AssertionError("no WRONGTYPE")
except redis.ResponseError as e:
    assert str(e).startswith("WRONGTYPE")
print("ok")
