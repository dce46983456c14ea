// Keeps the page as the pool is: asks for the parts that change, and puts in those that have. Nothing is asked while nobody looks.
'use strict';
(() => {
  const every = 4000, patience = 15000;
  const root = document.documentElement, status = document.getElementById('status');
  let timer = 0, asking = false, last = new Date();

  const clock = (t) => t.toLocaleTimeString();
  const say = (text, stale) => {
    if (status.textContent !== text) status.textContent = text;
    root.classList.toggle('stale', stale);
  };
  // A person who marks text, or is about to follow a link, is not disturbed.
  const busy = (part) => {
    const s = getSelection();
    return (s && !s.isCollapsed && part.contains(s.anchorNode)) || part.contains(document.activeElement);
  };
  const localTimes = (part) => {
    for (const t of part.querySelectorAll('time')) t.title = new Date(t.dateTime).toLocaleString();
  };

  const put = (text) => {
    const fresh = new DOMParser().parseFromString(text, 'text/html');
    let parts = 0;
    for (const now of fresh.querySelectorAll('[data-live]')) {
      const old = document.querySelector(`[data-live="${now.dataset.live}"]`);
      parts++;
      if (!old || busy(old)) continue;
      localTimes(now);
      if (old.innerHTML !== now.innerHTML) old.replaceWith(document.adoptNode(now));
    }
    if (!parts) throw new Error('the answer is none');
  };

  const look = async () => {
    if (asking || document.hidden) return;
    asking = true;
    clearTimeout(timer);
    try {
      const answer = await fetch('live' + location.search, {cache: 'no-store', signal: AbortSignal.timeout(patience)});
      if (!answer.ok) throw new Error(answer.status + ' ' + answer.statusText);
      put(await answer.text());
      last = new Date();
      root.dataset.updates = Number(root.dataset.updates || 0) + 1;
      say('live, as of ' + clock(last), false);
    } catch (e) {
      say('no answer since ' + clock(last) + ': this is how it was then', true);
    } finally {
      asking = false;
      timer = setTimeout(look, every);
    }
  };

  document.addEventListener('visibilitychange', () => { if (!document.hidden) look(); });
  localTimes(document);
  say('live, as of ' + clock(last), false);
  timer = setTimeout(look, every);
})();
