import { inspect } from 'node:util';

/**
 * Reports one file's tests as lines of JSON, for `runTests`: `{ outcome: 'passed' | 'failed' | 'skipped', name, line, why }`.
 * A suite counts with its tests, so it is reported only if a hook of its own failed.
 */
export default async function* report(events) {
  const names = [];
  for await (const { type, data } of events) {
    if (type === 'test:start') names[data.nesting] = data.name;
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const error = data.details.error;
    const bySubtests = error?.failureType === 'subtestsFailed';
    if (data.details.type === 'suite' && (type === 'test:pass' || bySubtests)) continue;
    const skipped = data.skip ?? data.todo;
    const name = [...names.slice(0, data.nesting), data.name].join(' > ');
    yield `${JSON.stringify({
      outcome: skipped !== undefined ? 'skipped' : type === 'test:pass' ? 'passed' : 'failed',
      name,
      line: data.line,
      why: skipped !== undefined ? reason(skipped) : error && !bySubtests ? described(error) : '',
    })}\n`;
  }
}

function reason(skipped) {
  return typeof skipped === 'string' ? skipped : '';
}

function described(error) {
  const cause = error.cause ?? error;
  return cause instanceof Error ? inspect(cause) : String(cause);
}
