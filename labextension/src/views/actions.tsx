/** What a kernel's owner can do about its share, as buttons. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Kernel } from '../schema';
import { Action } from '../state';

export type Act = Exclude<Action, 'request'>;

/** Which actions make sense in a state; the server has the last word. */
export function possibleActions(kernel: Kernel): Act[] {
  switch (kernel.state) {
    case 'detached':
      return [];
    case 'attached':
      return ['suspend', kernel.pinned ? 'unpin' : 'pin', 'release'];
    case 'suspended':
      return ['resume', kernel.pinned ? 'unpin' : 'pin', 'release'];
    default:
      return ['release'];
  }
}

interface IActionWords {
  readonly label: string;
  readonly hint: string;
}

/** Words of an action on this kernel, as on its buttons and in its menus. */
export function actionWords(action: Act, kernel: Kernel, trans: TranslationBundle): IActionWords {
  switch (action) {
    case 'release':
      return kernel.state === 'pending'
        ? {
            label: trans.__('Stop waiting'),
            hint: trans.__('Ask for no GPU any more; the kernel lives on without one')
          }
        : {
            label: trans.__('Release'),
            hint: trans.__('Give the GPU back; the kernel lives on without one')
          };
    case 'suspend':
      return {
        label: trans.__('Suspend'),
        hint: trans.__('Save the GPU memory to host memory; the kernel lives on')
      };
    case 'resume':
      return { label: trans.__('Resume'), hint: trans.__('Bring the GPU memory back') };
    case 'pin':
      return { label: trans.__('Pin'), hint: trans.__('Do not suspend it while it is idle') };
    case 'unpin':
      return { label: trans.__('Unpin'), hint: trans.__('It may be suspended while it is idle') };
    case 'move':
      return {
        label: trans.__('Move now'),
        hint: trans.__('Save the GPU memory and bring it back where there is room')
      };
  }
}

interface IActionsProps {
  kernel: Kernel;
  /** The action that was asked and is not answered yet. */
  waitsFor: Action | null;
  onAct: (kernelId: string, action: Act) => void;
  onAsk: () => void;
  trans: TranslationBundle;
}

export function Actions({ kernel, waitsFor, onAct, onAsk, trans }: IActionsProps): JSX.Element {
  const row = React.useRef<HTMLDivElement>(null);
  const keep = useKeptFocus(row);
  const waits = waitsFor !== null;
  return (
    <div ref={row} className="jp-GpuShare-actions" {...keep}>
      <button className="jp-GpuShare-button" aria-disabled={waits} onClick={() => waits || onAsk()}>
        {kernel.state === 'detached' ? trans.__('Request a GPU share…') : trans.__('Change…')}
      </button>
      {possibleActions(kernel).map(action => {
        const { label, hint } = actionWords(action, kernel, trans);
        return (
          <button
            key={action}
            className="jp-GpuShare-button"
            title={hint}
            aria-disabled={waits}
            aria-busy={waitsFor === action}
            onClick={() => waits || onAct(kernel.kernel_id, action)}
          >
            {label}
          </button>
        );
      })}
    </div>
  );
}

/**
 * The keyboard stays in a row of buttons whose buttons come and go: Pin becomes Unpin, Suspend becomes Resume. (A button that is `disabled`
 * loses the focus in browsers, so those that wait are only said to be.)
 */
function useKeptFocus(
  row: React.RefObject<HTMLElement>
): Pick<React.HTMLAttributes<HTMLElement>, 'onFocus' | 'onBlur'> {
  const at = React.useRef<number | null>(null);
  const buttons = () => [...(row.current?.querySelectorAll('button') ?? [])];
  React.useLayoutEffect(() => {
    const lost = document.activeElement === null || document.activeElement === document.body;
    if (at.current !== null && lost) {
      const left = buttons();
      left[Math.min(at.current, left.length - 1)]?.focus();
    }
  });
  return {
    onFocus: event => {
      at.current = buttons().indexOf(event.target as HTMLButtonElement);
    },
    onBlur: event => {
      const button = event.target;
      window.setTimeout(() => {
        if (button.isConnected && !row.current?.contains(document.activeElement)) {
          at.current = null; // the person went elsewhere; a button that is gone lost the focus with it
        }
      });
    }
  };
}
