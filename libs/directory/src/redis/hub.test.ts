import assert from 'node:assert/strict';
import { afterEach, describe, mock, test } from 'node:test';
import { changed } from '@isthmus/runtime/testing';
import { DIRECTORY } from '../defaults.ts';
import { RegistryUnavailable } from '../registry.ts';
import { sessionRecord } from '../testing/observer.ts';
import type { Client, RedisConnection } from './connection.ts';
import { type HubWriter, RedisRegistration, type WriteOutcome } from './hub.ts';

describe('registration', () => {
  afterEach(() => mock.restoreAll());

  const HUB = { hubId: 'h1', incarnation: 5, peerAddress: '', agentAddress: '', zone: '', draining: false };

  test('a takeover is tried again if the store fails during it', { timeout: 60_000 }, async () => {
    // The clock stands still, because the next report could only follow a second later.
    mock.method(performance, 'now', () => 0);
    using _times = changed(DIRECTORY, { backoffCapMs: 10 });
    const calls: string[] = [];
    const opened = Promise.withResolvers<void>();
    let later = true;
    const writer: Pick<HubWriter, 'hubId' | 'incarnation' | 'open' | 'takeOver' | 'remove'> = {
      hubId: HUB.hubId,
      incarnation: HUB.incarnation,
      async open(): Promise<WriteOutcome> {
        calls.push('open');
        if (later) return 'superseded';
        opened.resolve();
        return 'ok';
      },
      async takeOver() {
        calls.push('takeOver');
        if (calls.length === 2) throw new RegistryUnavailable('redis went away');
        later = false;
      },
      async remove() {},
    };
    const connection: Pick<RedisConnection, 'run'> = { run: (task) => task({} as Client) };
    const told: string[] = [];
    const registration = new RedisRegistration(HUB, connection as RedisConnection, writer as HubWriter, (_up, detail) =>
      told.push(detail),
    );
    await opened.promise;
    await registration.close();
    assert.deepEqual(calls, ['open', 'takeOver', 'open', 'takeOver', 'open']);
    assert.deepEqual(told, ['redis went away']);
  });

  test('announcements that come one after the other share a write', { timeout: 60_000 }, async () => {
    let now = 0;
    mock.method(performance, 'now', () => now);
    const [opened, written] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const writes: number[] = [];
    const writer: Pick<HubWriter, 'open' | 'write' | 'remove'> = {
      async open(): Promise<WriteOutcome> {
        opened.resolve();
        return 'ok';
      },
      async write(_client, _hub, _changed, _held, sessions): Promise<WriteOutcome> {
        writes.push(sessions.length);
        written.resolve();
        return 'ok';
      },
      async remove() {},
    };
    const connection: Pick<RedisConnection, 'run'> = { run: (task) => task({} as Client) };
    const registration = new RedisRegistration(HUB, connection as RedisConnection, writer as HubWriter, undefined);
    await opened.promise;
    for (let n = 0; n < 100; n++) {
      registration.announce(sessionRecord(HUB, `s${n}`));
      await new Promise(setImmediate);
    }
    assert.deepEqual(writes, []);
    now = DIRECTORY.coalesceMs;
    await written.promise;
    assert.deepEqual(writes, [100]);
    await registration.close();
  });

  test('a registration closes even if the store never answers', { timeout: 60_000 }, async () => {
    let asked = 0;
    const connection: Pick<RedisConnection, 'run'> = {
      run() {
        asked++;
        return new Promise(() => {});
      },
    };
    using _times = changed(DIRECTORY, { commandMs: 10 });
    const registration = new RedisRegistration(HUB, connection as RedisConnection, {} as HubWriter, undefined);
    await registration.close();
    assert.equal(asked, 1);
  });
});
