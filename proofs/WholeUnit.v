(* Linked files, promise A (a whole unit): a unit with all its members becomes any other possible unit with any
   other possible members. At most m (1 + q_m + q_u) members change, where m is the largest size of a
   unit, q_m and q_u count the active blocks of own features of members and of units; at most 1 + q_u
   units change in own features, and at most m - lo more in size. *)
From mathcomp Require Import all_ssreflect fingroup perm zify.
Require Import Datasets Reach Features Exchange Chain FiniteSets.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---- homes: how many members live in each unit ---- *)
Section Homes.
Variables (n k lo most : nat).
Local Notation homes := {ffun 'I_n -> 'I_k}.
Implicit Types (u w : homes) (i j : 'I_n) (g h : 'I_k).

Definition size_in u g := #|[set i | u i == g]|.
Definition allowed u := forall g, lo <= size_in u g <= most.

Lemma sizes_sum u : \sum_g size_in u g = n.
Proof.
rewrite -[RHS]card_ord -sum1_card (partition_big u predT) //=; apply: eq_bigr => g _.
by rewrite /size_in -sum1_card; apply: eq_bigl => i; rewrite inE.
Qed.

Lemma others_sum u h : \sum_(g | g != h) size_in u g = n - size_in u h.
Proof.
have := sizes_sum u; rewrite (bigD1 h) //=.
by move: (\sum_(g | g != h) _) (size_in u h) => s t; lia.
Qed.

(* One member i moves to unit g. *)
Definition move_to u i g : homes := [ffun j => if j == i then g else u j].

Lemma move_sizes u i g x : u i != g ->
  size_in (move_to u i g) x + (u i == x) = size_in u x + (g == x).
Proof.
move=> ug; have E (v : homes) : size_in v x = (v i == x) + \sum_(j | j != i) (v j == x).
  rewrite /size_in -sum1_card big_mkcond (bigD1 i) //= inE.
  by congr addn; apply: eq_bigr => j _; rewrite inE; case: eqP.
rewrite (E (move_to u i g)) (E u) ffunE eqxx.
rewrite (eq_bigr (fun j => nat_of_bool (u j == x))); last by move=> j /negbTE ji; rewrite ffunE ji.
by rewrite addnAC [RHS]addnAC; congr (_ + _); rewrite addnC.
Qed.

Lemma size_pos u g : 0 < size_in u g -> exists i, u i = g.
Proof. by case/card_gt0P=> i; rewrite inE => /eqP; exists i. Qed.

(* Unit h gets any size that it has in some file with allowed sizes; members only enter it, or only leave. *)
Lemma resize u u' h : allowed u -> allowed u' -> exists w, [/\ allowed w, size_in w h = size_in u' h
  & (forall i, w i = u i \/ w i = h) \/ (forall i, w i = u i \/ u i = h)].
Proof.
move=> au au'; have up d w0 : allowed w0 -> size_in u' h = size_in w0 h + d ->
    exists w, [/\ allowed w, size_in w h = size_in u' h & forall i, w i = w0 i \/ w i = h].
  elim: d w0 => [|d IH] w0 aw e; first by exists w0; split; [|rewrite e addn0|left].
  have [g gh big] : exists2 g, g != h & lo < size_in w0 g.
    apply/exists_inP; apply: contraT => /exists_inPn none.
    have : \sum_(g | g != h) size_in w0 g <= \sum_(g | g != h) size_in u' g.
      apply: leq_sum => g /none; rewrite -leqNgt => h1; apply: leq_trans h1 _.
      by have /andP[] := au' g.
    rewrite !others_sum e; have most_n : size_in u' h <= n by rewrite -[X in _ <= X]card_ord max_card.
    by move: most_n; rewrite e; lia.
  have [i ei] := size_pos (leq_ltn_trans (leq0n _) big).
  have ig : w0 i != h by rewrite ei.
  pose w1 := move_to w0 i h; have sizes x := move_sizes x ig.
  have neq : (h == g) = false by rewrite eq_sym (negbTE gh).
  have at_h : size_in w1 h = (size_in w0 h).+1.
    by have := sizes h; rewrite eqxx (negbTE ig) addn0 addn1.
  have aw1 : allowed w1.
    move=> x; have := sizes x; have := aw x; case: (eqVneq h x) => [<- /andP[h1 h2]|hx].
      have /andP[_ h3] := au' h; rewrite at_h => _; apply/andP; split; first exact: leqW.
      by apply: leq_trans h3; rewrite e; lia.
    case: (eqVneq g x) => [<- /andP[h1 h2]|gx]; rewrite ei; last by rewrite (negbTE gx) !addn0 => + ->.
    by rewrite eqxx addn0 addn1 => e1; apply/andP; split; [rewrite -ltnS e1|apply: leq_trans h2; rewrite -e1].
  have [|w [a1 a2 a3]] := IH w1 aw1; first by rewrite e at_h; lia.
  exists w; split=> // j; have [->|->] := a3 j; last by right.
  by rewrite ffunE; case: eqP => _; [right|left].
have down d w0 : allowed w0 -> size_in w0 h = size_in u' h + d ->
    exists w, [/\ allowed w, size_in w h = size_in u' h & forall i, w i = w0 i \/ w0 i = h].
  elim: d w0 => [|d IH] w0 aw e; first by exists w0; split; [|rewrite e addn0|left].
  have [g gh small] : exists2 g, g != h & size_in w0 g < most.
    apply/exists_inP; apply: contraT => /exists_inPn none.
    have : \sum_(g | g != h) size_in u' g <= \sum_(g | g != h) size_in w0 g.
      apply: leq_sum => g /none; rewrite -leqNgt => h1; apply: leq_trans _ h1.
      by have /andP[] := au' g.
    rewrite !others_sum e; have most_n : size_in w0 h <= n by rewrite -[X in _ <= X]card_ord max_card.
    by move: most_n; rewrite e; lia.
  have [|i ei] := @size_pos w0 h; first by rewrite e; lia.
  have ig : w0 i != g by rewrite ei eq_sym.
  pose w1 := move_to w0 i g; have sizes x := move_sizes x ig.
  have at_h : (size_in w1 h).+1 = size_in w0 h.
    by have := sizes h; rewrite ei eqxx (negbTE gh) addn0 addn1.
  have aw1 : allowed w1.
    move=> x; have := sizes x; have := aw x; rewrite ei; case: (eqVneq h x) => [<- /andP[h1 h2]|hx].
      have /andP[h3 _] := au' h; move=> _; apply/andP; split; last by apply: leq_trans h2; rewrite -at_h.
      by apply: leq_trans h3 _; rewrite -ltnS at_h e; lia.
    case: (eqVneq g x) => [<- /andP[h1 h2]|gx]; last by rewrite !addn0 => + ->.
    by rewrite addn0 addn1 => ->; rewrite small leqW.
  have [|w [a1 a2 a3]] := IH w1 aw1; first by apply/eqP; rewrite -eqSS at_h e addnS.
  exists w; split=> // j; case: (eqVneq j i) => [->|ji]; first by right.
  by have := a3 j; rewrite ffunE (negbTE ji).
case: (leqP (size_in u h) (size_in u' h)) => le.
  have [|w [a1 a2 a3]] := up (size_in u' h - size_in u h) u au; first by rewrite subnKC.
  by exists w; split=> //; left.
have [|w [a1 a2 a3]] := down (size_in u h - size_in u' h) u au; first by rewrite subnKC // ltnW.
by exists w; split=> //; right.
Qed.

(* Whose home unit h is, before or after, and the other units that change their size. *)
Definition at_home u w h := [set i | (u i == h) || (w i == h)].
Definition resized u w h := [set g | (g != h) && (size_in u g != size_in w g)].

Lemma few_at_home u w h : allowed u -> allowed w -> (forall i, w i = u i \/ w i = h) ->
  [/\ #|at_home u w h| <= most, #|resized u w h| <= most - lo & forall i, u i != w i -> i \in at_home u w h].
Proof.
move=> au aw enter; pose moved := [set i | u i != w i].
have inside : [set i | u i == h] \subset [set i | w i == h].
  by apply/subsetP=> i; rewrite !inE => /eqP e; have [->|->] := enter i; rewrite ?e.
have moved_in i : u i != w i -> (w i == h) && (u i != h).
  by move=> ne; have [e|e] := enter i; rewrite e ?eqxx in ne *.
have card_moved : #|moved| <= most - lo.
  have sub : moved \subset [set i | w i == h] :\: [set i | u i == h].
    by apply/subsetP=> i; rewrite !inE => /moved_in/andP[-> ->].
  apply: leq_trans (subset_leq_card sub) _; rewrite cardsD (setIidPr inside).
  by have /andP[h1 _] := au h; have /andP[_ h2] := aw h; rewrite /size_in in h1 h2; lia.
split.
- have -> : at_home u w h = [set i | w i == h].
    apply/setP=> i; rewrite !inE; case: eqP => // e.
    by have [->|->] := enter i; rewrite ?e eqxx.
  by have /andP[] := aw h.
- apply: leq_trans card_moved; apply: leq_trans (leq_imset_card u moved).
  apply: subset_leq_card; apply/subsetP=> g; rewrite inE => /andP[gh]; apply: contraR => /imsetP none.
  apply/eqP; apply: eq_card => i; rewrite !inE; case: (eqVneq (u i) (w i)) => [->//|ne].
  have /andP[/eqP wh _] := moved_in i ne; rewrite wh [h == g]eq_sym (negbTE gh); apply/eqP=> e.
  by case: none; exists i; rewrite ?inE.
by move=> i /moved_in/andP[e _]; rewrite inE e orbT.
Qed.

Lemma at_homeC u w h : at_home u w h = at_home w u h.
Proof. by apply/setP=> i; rewrite !inE orbC. Qed.

Lemma resizedC u w h : resized u w h = resized w u h.
Proof. by apply/setP=> g; rewrite !inE [size_in u g == _]eq_sym. Qed.

Lemma resize_few u u' h : allowed u -> allowed u' -> exists w, [/\ allowed w, size_in w h = size_in u' h,
  #|at_home u w h| <= most, #|resized u w h| <= most - lo & forall i, u i != w i -> i \in at_home u w h].
Proof.
move=> au au'; have [w [aw e [enter|leave]]] := resize h au au'; exists w.
  by have [? ? ?] := few_at_home au aw enter.
have [|h1 h2 h3] := @few_at_home w u h aw au.
  by move=> i; have [->|->] := leave i; [left|right].
by split; rewrite // 1?at_homeC 1?resizedC // => i; rewrite eq_sym; apply: h3.
Qed.
End Homes.

(* ---- the members of one unit, set one after another ---- *)
Section OwnRecords.
Variables (n : nat) (F B V N : finType) (block : F -> B) (node : F -> V -> N).
Local Notation dataset := (dataset (record F V) n).
Local Notation same_totals := (@same_totals (record F V) B _ (tuple_in block node) n).
Local Notation active := (@active (record F V) B _ (tuple_in block node) n).
Implicit Types (X Y Z : dataset) (own : {set 'I_n}).

Lemma set_records X Y own : same_totals X Y -> exists Z, [/\ same_totals X Z,
  forall i, i \in own -> Z i = Y i & #|changed X Z :\: own| <= #|own| * #|active X|].
Proof.
have step k X' : same_totals X' Y -> #|own :&: changed X' Y| <= k -> exists Z, [/\ same_totals X' Z,
    forall i, i \in own -> Z i = Y i & #|changed X' Z :\: own| <= k * #|active X'|].
  elim: k X' => [|k IH] X' hXY hk; case: (set_0Vmem (own :&: changed X' Y)) => [none|[p pi]].
  1,3: exists X'; split; first exact: same_totals_refl.
  1,3: by move=> i io; apply/eqP; apply: contraT => ne; have /setP/(_ i) := none; rewrite !inE io ne.
  1,2: by rewrite (_ : changed X' X' = set0) ?set0D ?cards0 //; apply/setP=> i; rewrite !inE eqxx.
    by move: hk; rewrite leqn0 cards_eq0 => /eqP/setP/(_ p); rewrite pi inE.
  have [po pc] := setIP pi; have [Z hZ sub] := chain_step hXY pc.
  have same := adjacent_same_totals hZ.
  have hZY : same_totals Z Y by apply: same_totals_trans hXY; rewrite same_totals_sym.
  have less : #|own :&: changed Z Y| <= k.
    have lt : own :&: changed Z Y \proper own :&: changed X' Y.
      apply/properP; split; first by apply/setIS/(subset_trans sub)/subsetDl.
      by exists p; rewrite // inE negb_and; apply/orP; right; apply/negP=> /(subsetP sub); rewrite !inE eqxx.
    by rewrite -ltnS; apply: leq_trans (proper_card lt) hk.
  have [Z' [h1 h2 h3]] := IH Z hZY less; exists Z'; split=> //; first exact: same_totals_trans same h1.
  rewrite mulSn; apply: (@leq_trans (#|changed X' Z :\: own| + #|changed Z Z' :\: own|)).
    apply: leq_trans (leq_card_setU _ _); apply: subset_leq_card; rewrite -setDUl; apply: setSD.
    by apply/subsetP=> i; rewrite !inE; apply: contraNT; rewrite negb_or !negbK => /andP[/eqP -> /eqP ->].
  apply: leq_add; last by rewrite (same_active same).
  have pZ : p \in changed X' Z.
    move: pc; rewrite !inE; apply: contraNN => /eqP ->; apply: contraT => ne.
    by have := subsetP sub p; rewrite !inE ne eqxx => /(_ isT).
  have := adjacent_in_ball hZ; rewrite /distance (cardsD1 p) pZ add1n addn1 ltnS.
  apply: leq_trans; apply: subset_leq_card; apply/subsetP=> i; rewrite !in_setD in_set1 => /andP[io ->].
  by rewrite andbT; apply: contraNneq io => ->.
by move=> h; apply: step h _; apply: subset_leq_card; apply: subsetIl.
Qed.
End OwnRecords.

Section WholeUnit.
(* Members have own features F, units own features G, both in disjoint blocks at published depths, as in
   Features.v. A file: the persons X, the unit in which each lives (u), and the units U. *)
Variables (n k lo most : nat).
Variables (F B V N : finType) (block : F -> B) (node : F -> V -> N).
Variables (G A V' N' : finType) (unit_block : G -> A) (unit_node : G -> V' -> N').
Local Notation persons := (dataset (record F V) n).
Local Notation units := (dataset (record G V') k).
Local Notation homes := {ffun 'I_n -> 'I_k}.
Local Notation same_members := (@same_totals (record F V) B _ (tuple_in block node) n).
Local Notation same_units := (@same_totals (record G V') A _ (tuple_in unit_block unit_node) k).
Implicit Types (X Y : persons) (u w : homes) (U W : units) (h g : 'I_k).

(* How many members of unit h have the record r. *)
Definition members_with X u h (r : record F V) := #|[set i | (u i == h) && (X i == r)]|.

(* The members that change: themselves, their unit, or what they inherit from it. *)
Definition changed_members X u U Y w W :=
  [set i | (X i != Y i) || (u i != w i) || (U (u i) != W (w i))].

(* REACH OF A WHOLE UNIT. Two files have the same exact totals of members and of units, and between lo and m
   members in every unit. Then the first can get unit h of the second, with its own features and all its
   members: totals are kept, sizes stay allowed, and at most m (1 + q_m + q_u) members change, what they
   inherit included. At most 1 + q_u units change their own features, and at most 1 + q_u + (m - lo)
   their own features or their size. *)
Theorem whole_unit_reach X u U X' u' U' h
    (q := #|active (tuple_in block node) X|) (q' := #|active (tuple_in unit_block unit_node) U|) :
  same_members X X' -> same_units U U' -> allowed lo most u -> allowed lo most u' ->
  exists Y w W, [/\ same_members X Y /\ same_units U W, allowed lo most w,
    W h = U' h /\ (forall r, members_with Y w h r = members_with X' u' h r),
    #|changed_members X u U Y w W| <= most * (1 + q + q')
    & distance U W <= 1 + q' /\
      #|[set g | (U g != W g) || (size_in u g != size_in w g)]| <= 1 + q' + (most - lo)].
Proof.
move=> hX hU au au'; have [w [aw sw few_home few_size in_home]] := resize_few h au au'.
(* the members of h after: their places in the second file *)
pose own := [set i | w i == h].
have [s hs] := @permutation_between _ own [set i | u' i == h] sw.
pose X1 : persons := [ffun i => X' (s i)].
have hX1 : same_members X X1.
  apply: same_totals_trans hX _; apply: (@rearranged_totals _ _ _ _ _ _ _ (fun=> s)) => i b.
  by rewrite ffunE.
have [Y [hY wish few_carriers]] := set_records own hX1.
(* the unit *)
have [W [hW Wh few_units]] : exists W, [/\ same_units U W, W h = U' h & #|changed U W :\ h| <= q'].
  case: (eqVneq (U h) (U' h)) => [e|ne].
    exists U; split; rewrite ?same_totals_refl //.
    by rewrite (_ : changed U U = set0) ?set0D ?cards0 //; apply/setP=> g; rewrite !inE eqxx.
  have hin : inhabited (tuple_in unit_block unit_node) U (U' h).
    by apply: possible_inhabited; apply/possibleP; exists U', h.
  have [W [hW Wh few]] := reach (blocks_of_features_independent unit_block unit_node) h hin.
  exists W; split=> //; have hc : h \in changed U W by rewrite inE Wh.
  apply: leq_trans (subset_leq_card (differ_active h hin)).
  by move: few; rewrite /distance (cardsD1 h) hc add1n addn1 ltnS.
exists Y, w, W; split=> //.
- split=> // r; rewrite /members_with.
  rewrite -(card_preimset [set i | (u' i == h) && (X' i == r)] (@perm_inj _ s)).
  apply: eq_card => i; rewrite !inE; have := hs i; rewrite !inE => ->.
  by case wi : (w i == h) => //=; rewrite wish ?inE // ffunE.
- pose inherit := [set i | (u i \in changed U W :\ h)].
  have sub : changed_members X u U Y w W \subset at_home u w h :|: (changed X Y :\: own) :|: inherit.
    apply/subsetP=> i; rewrite inE !in_setU => /orP[/orP[ne|/in_home -> //]|ne].
      case: (boolP (i \in own)) => io; first by move: io; rewrite !inE => ->; rewrite ?orbT.
      by rewrite in_setD io [i \in changed _ _]inE ne orbT.
    case: (eqVneq (u i) (w i)) => [e|/in_home -> //].
    case: (eqVneq (u i) h) => [uh|nh]; first by rewrite inE uh eqxx.
    by rewrite [i \in inherit]inE in_setD1 nh [_ \in changed _ _]inE [X in _ != W X]e ne !orbT.
  apply: leq_trans (subset_leq_card sub) _; apply: leq_trans (leq_card_setU _ _) _.
  rewrite !mulnDr muln1; apply: leq_add; last first.
    have -> : inherit = \bigcup_(g in changed U W :\ h) [set i | u i == g].
      apply/setP=> i; rewrite inE; apply/idP/bigcupP => [ui|[g gin]]; first by exists (u i); rewrite // inE.
      by rewrite inE => /eqP ->.
    apply: leq_trans (_ : \sum_(g in changed U W :\ h) most <= _); last first.
      by rewrite sum_nat_const mulnC leq_mul2l few_units orbT.
    elim/big_rec2: _ => [|g m S _ hS]; first by rewrite cards0.
    apply: leq_trans (leq_card_setU _ _) _; apply: leq_add hS; by have /andP[] := au g.
  apply: leq_trans (leq_card_setU _ _) _; apply: leq_add few_home _; apply: leq_trans few_carriers _.
  by rewrite leq_mul2r; apply/orP; right; have /andP[] := aw h.
have sub : [set g | (U g != W g) || (size_in u g != size_in w g)]
    \subset h |: (changed U W :\ h) :|: resized u w h.
  apply/subsetP=> g; rewrite inE in_setU in_setU1 in_setD1 [g \in resized _ _ _]inE [g \in changed _ _]inE.
  by case: (g == h) => //=.
split.
  apply: (@leq_trans #|h |: (changed U W :\ h)|); last by rewrite cardsU1 !inE eqxx leq_add2l.
  apply: subset_leq_card; apply/subsetP=> g gc; rewrite in_setU1 in_setD1 gc andbT; by case: eqP.
apply: leq_trans (subset_leq_card sub) _; apply: leq_trans (leq_card_setU _ _) _; apply: leq_add => //.
by rewrite cardsU1 !inE eqxx leq_add2l.
Qed.

End WholeUnit.
