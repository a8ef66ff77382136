import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dialLine, traceLink } from './dial-line.ts';

const PLACE = { address: '127.0.0.1:8095', gateway: 'gateway-1' };
const DIAL = { destination: '10.0.0.1:443', tenant: 'default', agentId: 'agent-1' };

test('a dial becomes the command line that repeats it', () => {
  assert.equal(
    dialLine(DIAL, PLACE),
    'isthmus dial --agent=agent-1 --gateway=gateway-1 --address=127.0.0.1:8095 10.0.0.1:443',
  );
  assert.equal(
    dialLine({ destination: '[fd00::1]:443', tenant: 'acme', agentId: '' }, { ...PLACE, gateway: '' }),
    "isthmus dial --tenant=acme --address=127.0.0.1:8095 '[fd00::1]:443'",
  );
});

test('names of an evil agent are quoted, are never options, and never reach a terminal with controls', () => {
  const evil = { ...DIAL, destination: '--help', agentId: '$(reboot)' };
  assert.equal(
    dialLine(evil, PLACE),
    "isthmus dial '--agent=$(reboot)' --gateway=gateway-1 --address=127.0.0.1:8095 -- --help",
  );
  assert.equal(dialLine({ ...DIAL, agentId: 'a\u001b]0;x\u0007' }, PLACE), undefined);
  assert.equal(dialLine({ ...DIAL, agentId: 'x'.repeat(10_240) }, PLACE), undefined);
});

test('a trace is linked by its id, if it is one', () => {
  const template = 'https://traces.example/{trace_id}?id={trace_id}';
  const id = '0af7651916cd43dd8448eb211c80319c';
  assert.equal(traceLink(template, id), `https://traces.example/${id}?id=${id}`);
  assert.equal(traceLink('', id), undefined);
  for (const wrong of ['', '../../x', `${id}0`]) assert.equal(traceLink(template, wrong), undefined);
});
