/** Which kernel belongs to which notebook, and the share saved in the notebook. */
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { Kernel, KernelRequest } from './schema';
import { IState } from './state';

/** The key in the notebook metadata. */
export const METADATA_KEY = 'gpushare';

/** The only fields read from a saved request: a notebook may come from anywhere. */
const WORDS = [
  'preset',
  'gpu',
  'gpu_memory',
  'gpu_limit',
  'project',
  'node_pools',
  'priority_class'
] as const;

export function kernelIdOf(panel: NotebookPanel): string | null {
  return panel.sessionContext.session?.kernel?.id ?? null;
}

/** The state of this notebook's kernel; null while it has none or it is not known yet. */
export function kernelOf(panel: NotebookPanel, state: IState): Kernel | null {
  const id = kernelIdOf(panel);
  return state.status?.kernels.find(kernel => kernel.kernel_id === id) ?? null;
}

/** Every open notebook with this kernel. */
export function notebooksOf(notebooks: INotebookTracker, kernelId: string): NotebookPanel[] {
  const found: NotebookPanel[] = [];
  notebooks.forEach(panel => kernelIdOf(panel) === kernelId && found.push(panel));
  return found;
}

/** The share saved in the notebook, or null. */
export function savedRequest(panel: NotebookPanel): KernelRequest | null {
  const kept: unknown = panel.model?.sharedModel.getMetadata(METADATA_KEY);
  if (typeof kept !== 'object' || kept === null) {
    return null;
  }
  const words = Object.entries(kept).filter(([name]) =>
    (WORDS as readonly string[]).includes(name)
  );
  return words.length === 0 ? null : (Object.fromEntries(words) as KernelRequest);
}

/** Paths of notebooks whose share was chosen in this page. */
const chosenHere = new Set<string>();

/** Note that the share of this notebook was chosen in this page and needs no notification. */
export function markChosen(path: string): void {
  chosenHere.add(path);
}

export function isChosenInThisPage(panel: NotebookPanel): boolean {
  return chosenHere.has(panel.context.path);
}

/** Save a request in the notebook (null: remove it). Does not touch an unchanged notebook. */
export function saveRequest(panel: NotebookPanel, request: KernelRequest | null): void {
  const shared = panel.model?.sharedModel;
  markChosen(panel.context.path);
  if (shared === undefined || JSON.stringify(savedRequest(panel)) === JSON.stringify(request)) {
    return;
  }
  if (request === null) {
    shared.deleteMetadata(METADATA_KEY);
  } else {
    shared.setMetadata(METADATA_KEY, request as Parameters<typeof shared.setMetadata>[1]);
  }
}

/** Whether no share was ever requested for this kernel: a reload must not undo a release. */
export function hasNoHistory(kernel: Kernel): boolean {
  return (
    kernel.state === 'detached' &&
    kernel.events.length === 0 &&
    kernel.workload === null &&
    kernel.reason === null
  );
}
