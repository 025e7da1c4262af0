/** Which kernel belongs to which notebook, and which share the notebook remembers. */
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { Kernel, KernelRequest } from './schema';
import { IState } from './state';

/** The key in a notebook's metadata under which its choice is kept. */
export const METADATA_KEY = 'gpushare';

/** Of a savedRequest request only these words are believed: a notebook may come from anywhere. */
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

/** What is known of this notebook's kernel; null while it has none, or none that we heard of. */
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

/** The share that the notebook was last given by choice; null when it remembers none. */
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

/** Paths of notebooks whose share was chosen in this page. A notebook that is renamed later has asked long before. */
const chosenHere = new Set<string>();

/** Take note that a share was chosen for the notebook at this path, by somebody who need not be told of it. */
export function markChosen(path: string): void {
  chosenHere.add(path);
}

export function isChosenInThisPage(panel: NotebookPanel): boolean {
  return chosenHere.has(panel.context.path);
}

/** Keep a choice in the notebook (null: none), unless it is kept already: an unchanged notebook must not look changed. */
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

/** Whether nobody has asked anything for this kernel yet: what was released must not come back by a reload of the page. */
export function hasNoHistory(kernel: Kernel): boolean {
  return (
    kernel.state === 'detached' &&
    kernel.events.length === 0 &&
    kernel.workload === null &&
    kernel.reason === null
  );
}
