import type { Facts } from './findings.ts';

export function growth(_facts: Facts): string {
  return '';
}
