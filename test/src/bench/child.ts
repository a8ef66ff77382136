import { fork } from 'node:child_process';
import { once } from 'node:events';
import { killChild, type Scope, within } from '../harness/index.ts';

/**
 * Starts a process of the bench that ends with the scope. Resolves with the first message it sends: the port where it listens.
 * @param command what runs it: a Node, perhaps behind `ip netns exec ...`
 */
export async function listening(
  scope: Scope,
  file: string,
  argument = '',
  [execPath = '', ...execArgv]: readonly string[] = [process.execPath],
) {
  const child = fork(new URL(file, import.meta.url), [argument], { execPath, execArgv });
  scope.defer(() => killChild(child));
  const [port] = await within(once(child, 'message'), { what: `${file} to listen` });
  return { port: port as number, pid: child.pid ?? 0 };
}

/** Starts a process of the bench, sends it one message, returns its one answer, and ends it. */
export async function ask<Answer>(file: string, message: object, deadline: number): Promise<Answer> {
  const child = fork(new URL(file, import.meta.url));
  const lost = once(child, 'exit').then(([status, signal]) => {
    throw new Error(`${file} ended without an answer (${signal ?? `status ${status}`})`);
  });
  const answer = once(child, 'message');
  child.send(message);
  try {
    const [said] = await within(Promise.race([answer, lost]), { deadline, what: `an answer of ${file}` });
    return said as Answer;
  } finally {
    lost.catch(() => {});
    await killChild(child);
  }
}
