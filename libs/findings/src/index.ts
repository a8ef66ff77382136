export { adviceFor } from './advice.ts';
export { type Difference, differencesOf } from './config.ts';
export { OWN_HEALTH_PORT, ofDial } from './dials.ts';
export type { Evidence, Witness } from './evidence.ts';
export { judge } from './judge.ts';
export { cutOff } from './links.ts';
export {
  asJson,
  type Config,
  type Dial,
  type Hub,
  type Json,
  type Members,
  type Refusal,
  type Session,
  type Status,
  type Tenants,
} from './messages.ts';
export { lost } from './missing.ts';
export {
  CHECKS,
  type CheckName,
  type Finding,
  findingsIn,
  type Report,
  type Result,
  reportOf,
} from './result.ts';
export { NEARLY_USED_UP } from './tenants.ts';
export { age, millis, plural } from './words.ts';
