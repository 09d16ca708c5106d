// Uses node-redis and ioredis as their documentation does; prints ok.
import assert from 'node:assert';
import { createClient } from 'redis';
import Redis from 'ioredis';

const port = Number(process.argv[2]);

const a = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
assert.equal(await a.set('k', 'v', { EX: 60 }), 'OK');
assert.equal(await a.get('k'), 'v');
await a.hSet('h', { x: '1', y: '2' });
assert.deepEqual({ ...(await a.hGetAll('h')) }, { x: '1', y: '2' });
assert.deepEqual(await a.hExpire('h', 'x', 60), [1]);
assert.deepEqual(await a.multi().incr('n').incr('n').exec(), [1, 2]);
assert.deepEqual(await a.zAdd('z', { score: 1.5, value: 'm' }), 1);
assert.deepEqual(await a.zRangeWithScores('z', 0, -1), [{ score: 1.5, value: 'm' }]);
const keys = [];
for await (const found of a.scanIterator({ COUNT: 2 })) keys.push(...[].concat(found));
assert.deepEqual(keys.sort(), ['h', 'k', 'n', 'z']);
await a.close();

const b = new Redis(port);
assert.equal(await b.set('i', 'v', 'EX', 60), 'OK');
assert.equal(await b.get('i'), 'v');
assert.deepEqual(await b.hgetall('h'), { x: '1', y: '2' });
assert.deepEqual(await b.pipeline().incr('n').get('n').exec(), [[null, 3], [null, '3']]);
assert.deepEqual(await b.multi().set('t', 1).incr('t').exec(), [[null, 'OK'], [null, 2]]);
await b.quit();
console.log('ok');
