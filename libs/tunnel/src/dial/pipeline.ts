import type { Dial } from './dial.ts';
import { DialError } from './errors.ts';

/** One step of a dial's way through a program: it does its part, and calls the next one. The function's name is the stage's. */
export type Stage = (next: Dial) => Dial;

/** Joins the stages of a program's dials. The first one gets the request first; the last one answers it and calls no other. */
export function pipeline(stages: readonly Stage[]): Dial {
  return stages.reduceRight<Dial>((next, stage) => stage(next), unanswered);
}

const unanswered: Dial = () => Promise.reject(new DialError('proxy_internal_error', 'no stage answers this dial'));
