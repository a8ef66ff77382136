import assert from 'node:assert/strict';
import { afterEach, describe, mock, test } from 'node:test';
import { ConnectionError, ErrorCode } from '../codes.ts';
import type { Http2Stream } from '../stream/stream.ts';
import { streamsOf } from '../testing.ts';

describe('stream resets', () => {
  afterEach(() => mock.restoreAll());

  const NOTHING = Buffer.alloc(0);
  const tooMany = (error: unknown) => error instanceof ConnectionError && error.code === ErrorCode.ENHANCE_YOUR_CALM;

  type Ending = (stream: Http2Stream, reset: (code: number) => void) => void;

  const ANSWERED = 'once its request is answered';

  /** What ends a stream, and whether that counts among the resets of those who count all, and of those who spare answered requests. */
  const endings: [what: string, counted: boolean, sparing: boolean, end: Ending][] = [
    ['the other side’s CANCEL', true, true, (_, reset) => reset(ErrorCode.CANCEL)],
    ['another reset of the other side', true, true, (_, reset) => reset(ErrorCode.INTERNAL_ERROR)],
    ['the other side’s NO_ERROR', true, true, (_, reset) => reset(ErrorCode.NO_ERROR)],
    ['a stream error of the other side', true, true, (stream) => stream.widen(0)],
    ['more than its window', true, true, (stream) => stream.receiveData(Buffer.alloc(100_000), 0, false)],
    ['our INTERNAL_ERROR', false, false, (stream) => stream.reset(ErrorCode.INTERNAL_ERROR)],
    ['our CANCEL', false, false, (stream) => stream.reset(ErrorCode.CANCEL)],
    [
      `the other side’s CANCEL ${ANSWERED}`,
      true,
      false,
      (stream, reset) => {
        stream.answer(NOTHING);
        reset(ErrorCode.CANCEL);
      },
    ],
    [
      'the end of both sides, and a reset behind it',
      false,
      false,
      (stream, reset) => {
        stream.end(NOTHING);
        stream.receiveEnd();
        reset(ErrorCode.CANCEL);
      },
    ],
  ];

  for (const [what, all, sparing, end] of endings) {
    for (const [countsAnswered, counted] of [
      [true, all],
      [false, sparing],
    ] as const) {
      const who = countsAnswered ? 'those who count all' : 'those who spare answered requests';
      test(`${what} counts ${counted ? 'once' : 'not at all'} among the resets, for ${who}`, () => {
        // A clock that stands still: all of them fall into one window of time.
        mock.method(performance, 'now', () => 0);
        const maxResets = 300;
        const { streams, open } = streamsOf('server', { rules: { countsAnswered, maxResets } });
        for (let n = 0; n <= maxResets; n++) {
          streams.resets.check();
          const id = 2 * n + 1;
          end(open(id), (code) => streams.receiveReset(id, code));
        }
        assert.equal(streams.size, 0);
        if (counted) assert.throws(() => streams.resets.check(), tooMany);
        else streams.resets.check();
      });
    }
  }

  test('stream errors of a server count for its client, too', () => {
    const { streams, open } = streamsOf('client', { rules: { maxResets: 10 } });
    for (let n = 0; n <= 10; n++) open(2 * n + 1).widen(0);
    assert.throws(() => streams.resets.check(), tooMany);
  });
});
