/**
 * Checks typed amounts with the rules of the server, so that errors show while a person types.
 * Pure; jupyter_gpushare/core/model/units.py and the server's request check decide.
 */
import { TranslationBundle } from '@jupyterlab/translation';

import { IRequestError } from './state';

export type Unit = 'gpu' | 'gpu_memory';

/** The amounts of the request form as typed; an empty limit means none. */
export interface IAmounts {
  readonly unit: Unit;
  readonly amount: string;
  readonly limit: string;
}

const NUMBER = /^[+-]?\d*\.?\d+(e[+-]?\d+)?$|^[+-]?\d+\.$/i;
const NUMBER_AND_UNIT = /^\s*([+-]?\d*\.?\d+(?:e[+-]?\d+)?)\s*([a-z]*)\s*$/i;
const MEMORY_UNITS = 'B KiB MiB GiB TiB KB MB GB TB Ki Mi Gi Ti'.split(' ');
const MAX_GPUS = 1_000_000;
const MILLI = 1000;

/** The first invalid field; null when the server can read all of them. */
export function amountError(amounts: IAmounts, trans: TranslationBundle): IRequestError | null {
  const { unit, amount, limit } = amounts;
  const problem = unit === 'gpu' ? shareProblem(amount, trans) : memoryProblem(amount, trans);
  if (problem !== null) {
    return { field: unit, message: problem };
  }
  const share = unit === 'gpu' ? numberIn(amount) : null;
  const limitError = limit.trim() === '' ? null : limitProblem(limit, share, trans);
  return limitError === null ? null : { field: 'gpu_limit', message: limitError };
}

/** The likely readings of a size without a unit; empty for other texts. */
export function readings(amount: string): readonly string[] {
  const text = amount.trim();
  return NUMBER.test(text) && Number(text) > 0 ? [`${text}GiB`, `${text}MiB`] : [];
}

function numberIn(text: string): number | null {
  return NUMBER.test(text.trim()) ? Number(text) : null;
}

function gpuProblem(text: string, trans: TranslationBundle): string | null {
  const gpus = numberIn(text);
  if (gpus === null) {
    return trans.__('Enter a number of GPUs, such as 0.5 or 2.');
  }
  if (gpus <= 0) {
    return trans.__('Enter more than 0.');
  }
  if (gpus * MILLI < 1) {
    return trans.__('The smallest share is 0.001 GPU.');
  }
  return gpus > MAX_GPUS ? trans.__('Too many GPUs.') : null;
}

function shareProblem(text: string, trans: TranslationBundle): string | null {
  const problem = gpuProblem(text, trans);
  const gpus = Number(text);
  if (problem !== null || gpus <= 1 || Math.floor(gpus * MILLI) % MILLI === 0) {
    return problem;
  }
  return trans.__(
    'Above 1 GPU only whole numbers are possible: %1 or %2.',
    Math.floor(gpus),
    Math.ceil(gpus)
  );
}

function memoryProblem(text: string, trans: TranslationBundle): string | null {
  const match = NUMBER_AND_UNIT.exec(text);
  if (match === null) {
    return trans.__('Enter a size with a unit, such as 20GiB or 512MiB.');
  }
  const [, amount, unit] = match;
  if (Number(amount) <= 0) {
    return trans.__('Enter more than 0.');
  }
  if (unit === '') {
    return trans.__('A size needs a unit: %1GiB or %1MiB.', amount);
  }
  return MEMORY_UNITS.includes(unit) ? null : trans.__('Unknown unit "%1". Use GiB or MiB.', unit);
}

/** `share`: the requested GPUs; null for a request in memory. */
function limitProblem(text: string, share: number | null, trans: TranslationBundle): string | null {
  const problem = gpuProblem(text, trans);
  const limit = Number(text);
  if (problem !== null) {
    return problem;
  }
  if (share !== null && share > 1) {
    return limit === share ? null : trans.__('The limit of %1 GPUs is %1.', share);
  }
  if (share !== null && limit < share) {
    return trans.__('The limit is below the share of %1 GPU.', share);
  }
  return limit > 1 ? trans.__('The limit of a share is at most 1 GPU.') : null;
}
