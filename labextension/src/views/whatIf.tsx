/** Would it start now? Asked before asking, and for a kernel that waits: what would start at once instead. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { sentence } from '../messages';
import { Alternative, KernelRequest, WhatIfAnswer } from '../schema';
import { Expected } from './expectedWait';

/** Of a kernel that has a share or waits for one: would it start in place of that? */
export type AskWhatIf = (request: KernelRequest, kernelId?: string) => Promise<WhatIfAnswer>;

/** While a person types, the question that is asked is the one they stop at. */
const SETTLE_MS = 300;

type Known = { readonly answer: WhatIfAnswer } | { readonly problem: string } | null;

/** The answer to the request as it is now; null while it is on its way. `key` names what else it depends on. */
export function useWhatIf(ask: AskWhatIf, request: KernelRequest | null, key = ''): Known {
  const [known, setKnown] = React.useState<Known>(null);
  const text = request === null ? null : JSON.stringify(request);
  React.useEffect(() => {
    setKnown(null);
    if (text === null) {
      return undefined;
    }
    let wanted = true;
    const tell = (value: Known) => wanted && setKnown(value);
    const timer = window.setTimeout(() => {
      ask(JSON.parse(text) as KernelRequest).then(
        answer => tell({ answer }),
        error => tell({ problem: error instanceof Error ? error.message : String(error) })
      );
    }, SETTLE_MS);
    return () => {
      wanted = false;
      window.clearTimeout(timer);
    };
  }, [text, key]);
  return known;
}

interface IExpectationProps {
  known: Known;
  trans: TranslationBundle;
}

/** What to expect of a request that has not been made: when it starts, where, and who has to make room. */
export function Expectation({ known, trans }: IExpectationProps): JSX.Element {
  return (
    <div
      className="jp-GpuShare-expect"
      role="status"
      data-starts={known !== null && 'answer' in known ? known.answer.starts_now : undefined}
    >
      {expectation(known, trans)}
      {known !== null && 'answer' in known && <Expected wait={known.answer.expected_wait} />}
    </div>
  );
}

/** The same in words. A problem is said by the request itself; here it only means that nothing can be expected. */
export function expectation(known: Known, trans: TranslationBundle): string {
  if (known === null) {
    return trans.__('Asking whether it would start now…');
  }
  if ('problem' in known) {
    return sentence(known.problem);
  }
  const { starts_now, node, displaces, reason } = known.answer;
  const room =
    displaces.length === 0
      ? ''
      : ` ${trans._n('%1 other has to make room.', '%1 others have to make room.', displaces.length)}`;
  if (starts_now) {
    return (
      (node === null
        ? trans.__('Would start now.')
        : trans.__('Would start now, on node %1.', node)) + room
    );
  }
  if (reason?.code === 'WaitingForReclaim' && displaces.length > 0) {
    return trans._n(
      'Would start as soon as %1 other has made room.',
      'Would start as soon as %1 others have made room.',
      displaces.length
    );
  }
  return trans.__('Would wait. %1', reason?.message ?? '').trim() + room;
}

/** A request with an alternative's words in place of its own; another amount drops the limit that belonged to the old one. */
export function changed(request: KernelRequest, change: KernelRequest): KernelRequest {
  const { gpu, gpu_memory, gpu_limit, ...others } = request;
  return change.gpu === undefined ? { ...request, ...change } : { ...others, ...change };
}

interface IAlternativesProps {
  alternatives: readonly Alternative[];
  /** With what has to change in the request. */
  onChoose: (change: KernelRequest) => void;
  trans: TranslationBundle;
}

/** What would start at once instead; one press asks for it. */
export function Alternatives({
  alternatives,
  onChoose,
  trans
}: IAlternativesProps): JSX.Element | null {
  if (alternatives.length === 0) {
    return null;
  }
  return (
    <ul className="jp-GpuShare-alternatives">
      {alternatives.map(one => (
        <li key={one.message}>
          {one.message}{' '}
          <button
            type="button"
            className="jp-GpuShare-link"
            onClick={() => onChoose(one.request as KernelRequest)}
          >
            {trans.__('Ask for this instead')}
          </button>
        </li>
      ))}
    </ul>
  );
}
