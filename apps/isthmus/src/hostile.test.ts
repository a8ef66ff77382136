import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { filledAnswer } from '@isthmus/proto/testing';
import { FORMATS } from './output.ts';
import { run } from './program.ts';
import { TestTerminal } from './testing/test-terminal.ts';

/** Colours, a title and a forged line, by all that ends a line, and marks that turn or hide text. */
const EVIL = 'x\u001b[31m\u001b]0;T\u0007\nFORGED\r\u2028FORGED\u202e\u0085FORGED\u009b2J\u0000\ud800y';

const COMMANDS: readonly (readonly string[])[] = [
  ['status'],
  ['status', '--watch'],
  ['tenants'],
  ['agents'],
  ['agents', EVIL],
  ['agents', '--sessions'],
  ['agents', '--field-selector', EVIL],
  ['hubs'],
  ['tunnels'],
  ['cuts'],
  ['events'],
  ['events', '--for', EVIL],
  ['watch', '--for', '50ms'],
  ['check'],
  ['explain', '10.0.0.1:1'],
  ['dial', '10.0.0.1:1'],
  ['dial', '10.0.0.1:1', '--count', '2', '--interval', '1ms'],
  ['dial', '10.0.0.1:1', '--gateway', EVIL],
  ['diag', 'FILE'],
  ['drain', `g${EVIL}`],
  ['drain', `g${EVIL}`, '--dry-run'],
  ['kick', 'agent', EVIL],
  ['quarantine'],
  ['quarantine', EVIL, '--reason', EVIL],
  ['quarantine', EVIL, '--lift'],
  ['config', '--all'],
  ['log-level'],
  ['version'],
];

describe('whatever members say', () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-hostile-'));
  const members = ['gateway', 'hub', 'silent'].map((role) => {
    const id = `${role[0]}${EVIL}`;
    return { id, roles: [role === 'silent' ? 'hub' : role], address: EVIL, version: EVIL, zone: EVIL };
  });
  let flag = false;
  let knowsNothing = false;
  const server = createServer(async (request, response) => {
    const { method, members: ids } = JSON.parse(await text(request));
    const answer = knowsNothing || !method ? {} : filledAnswer(method, EVIL, flag);
    const list = members.map(({ id, roles }) => ({ memberId: id, roles: [roles[0] === 'hub' ? 2 : 1] }));
    const error = { code: 'unavailable', message: EVIL };
    const asked = members.filter(({ id }) => (ids?.length === 0 ? id.startsWith('g') : ids?.includes(id) !== false));
    for (const member of asked) {
      const said = method === 'ListMembers' ? { ...answer, members: list } : answer;
      response.write(`${JSON.stringify({ member, ...(member.id.startsWith('s') ? { error } : { answer: said }) })}\n`);
    }
    response.end();
  });
  before(() => once(server.listen(0, '127.0.0.1'), 'listening'));
  after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(dir, { recursive: true });
  });

  for (const command of COMMANDS)
    it(`acts on no terminal, and begins no line: ${command.join(' ').split('\u001b')[0]}`, async () => {
      for (const format of [...FORMATS, ...FORMATS]) {
        flag = !flag;
        if (format === FORMATS[0]) knowsNothing = !knowsNothing;
        const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
        const file = join(dir, `${Math.random()}`);
        const args = command.map((word) => (word === 'FILE' ? file : word));
        const terminal = new TestTerminal([...args, '--address', address, '-o', format, '--timeout', '1s'], {
          ...{ interactive: true, columns: 1000 },
          interrupted: command.includes('--watch') ? AbortSignal.timeout(100) : new AbortController().signal,
        });
        await run(terminal);
        const printed = terminal.stdout + terminal.stderr;
        assert.match(printed, /^[\n\P{C}]*$/u, format);
        assert.doesNotMatch(printed, /^\s*FORGED/m, format);
      }
    });
});
